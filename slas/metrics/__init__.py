"""The metrics that ship with tailgate, one family a file; ``slas.metric`` lists them."""
