"""The text of a request: unlike that of any other request and run, about as long as planned, and cheap to make."""

from __future__ import annotations

import hashlib
import re

import numpy as np

# four letters each, one token each after a space in the vocabularies of today's models
_VOCABULARY = """
able acid aged also area army away baby back ball band bank base bath bear beat been beer bell belt best bill
bird blow blue boat body bond bone book boom born boss both bowl bulk burn bush busy call calm came camp card
care case cash cast cell chat chip city club coal coat code cold come cook cool cope copy core cost crew crop
dark data date dawn days deal dean dear debt deep deny desk dial diet disc disk does done door dose down draw
drew drop dual duke dust duty each earn ease east easy edge else even ever exit face fact fail fair fall farm
fast fate fear feed feel feet fell felt file fill film find fine fire firm fish five flat flow food foot ford
form fort four free from fuel full fund gain game gate gave gear gene gift girl give glad goal goes gold golf
gone good gray grea grew grey grow gulf hair half hall hand hang hard harm have head hear heat held help here
hero high hill hire hold hole holy home hope host hour huge hung hunt hurt idea inch into iron item jack join
jump jury just keen keep kept kick kind king knee knew know lack lady laid lake land lane last late lead left
less life lift like line link list live load loan lock logo long look lord lose loss lost love luck made mail
main make male many spli meal mean meat meet mild mile milk mind mine
"""
WORDS = tuple(re.findall("[a-z]{4}", _VOCABULARY))
assert len(set(WORDS)) == len(WORDS) == 256, "a byte chooses one of 256 words"

_POOL_WORDS = 1 << 14
_STEP = 5  # a word and its space
_POOL = "".join(
    WORDS[index] + " "
    for index in np.random.Generator(np.random.PCG64(20231116)).integers(0, 256, _POOL_WORDS)
)
# this many words name the request, so that two requests part ways in their first block of any prefix cache
_NAME_WORDS = 6
# a salt is hex, which vocabularies cut into pieces of about two characters
_SALT_CHARACTERS_PER_TOKEN = 2


def prompt_text(*, salt: str, seed: int, tenant: str, ordinal: int, tokens: int) -> str:
    """Return a prompt of about ``tokens`` tokens: the salt, a name in words, then words from a fixed pool.

    The salt comes first and counts, so that no run finds a prefix cache warmed by another; a prompt planned
    shorter than its salt is the salt alone.

    >>> prompt_text(salt="7f3a", seed=7, tenant="chat", ordinal=0, tokens=6)
    '7f3a land city dawn holy'
    """
    words = tokens - (len(salt) + _SALT_CHARACTERS_PER_TOKEN - 1) // _SALT_CHARACTERS_PER_TOKEN
    if words <= 0:
        return salt
    name = hashlib.blake2b(f"{seed}/{tenant}/{ordinal}".encode(), digest_size=_NAME_WORDS + 4)
    drawn = name.digest()
    text = " ".join(
        [*filter(None, [salt]), *(WORDS[byte] for byte in drawn[: min(words, _NAME_WORDS)])]
    )
    rest = words - _NAME_WORDS
    if rest <= 0:
        return text
    start = int.from_bytes(drawn[_NAME_WORDS:], "big") % _POOL_WORDS
    pool = _POOL * (1 + (start + rest) // _POOL_WORDS)
    return text + " " + pool[start * _STEP : (start + rest) * _STEP - 1]
