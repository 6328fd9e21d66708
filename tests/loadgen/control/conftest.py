"""Programs, not modules: they are run by path, and the locustfile would patch the interpreter that imports it."""

collect_ignore = ["fake_generator.py", "fake_locustfile.py", "fake_tailgate.py"]
