"""Kafka's JAAS strings: which login module, and the options that it is given.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Values may be quoted, with a backslash before a quotation mark. ConfigError names what is wrong, and
a module that is not offered here; it never shows an option's value.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tidelog.errors import ConfigError

_PACKAGE: Final = "org.apache.kafka.common.security."
PLAIN_MODULE: Final = _PACKAGE + "plain.PlainLoginModule"
SCRAM_MODULE: Final = _PACKAGE + "scram.ScramLoginModule"
OAUTH_MODULE: Final = _PACKAGE + "oauthbearer.OAuthBearerLoginModule"
MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE)
USER_PREFIX: Final = "user_"

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s=";]+)|([=;]))', re.DOTALL)
_TEXT_MAX: Final = 1 << 20


class Login(NamedTuple):
    """One entry: the class of a module and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Login(module={self.module!r}, options=hidden)"

    @property
    def users(self) -> dict[str, str]:
        """The passwords of a PLAIN module's users."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> Login:
    """The one entry of a JAAS string."""
    words = _words(text)
    if len(words) < 3 or words[-1] != (";", True):
        raise ConfigError("a JAAS string is MODULE required NAME=VALUE ... and ends with ;")
    (module, _), (flag, _) = words[:2]
    if module not in MODULES:
        raise ConfigError(f"the login module {module} is not offered; there are {_listed()}")
    if flag.lower() not in _FLAGS:
        raise ConfigError(f"after the login module stands {' or '.join(_FLAGS)}")
    return Login(module, _options(words[2:-1]))


def _listed() -> str:
    return ", ".join(MODULES)


def _options(words: list[tuple[str, bool]]) -> dict[str, str]:
    options: dict[str, str] = {}
    if len(words) % 3:
        raise ConfigError("the options of a login module are NAME=VALUE, and it ends with one ;")
    for at in range(0, len(words), 3):
        (name, is_sign), equals, (value, is_other) = words[at : at + 3]
        if is_sign or is_other or equals != ("=", True):
            raise ConfigError("the options of a login module are NAME=VALUE")
        if name in options:
            raise ConfigError(f"the option {name} of a login module is given twice")
        options[name] = value
    return options


def _words(text: str) -> list[tuple[str, bool]]:
    """Names, values and signs; True with the signs."""
    if len(text) > _TEXT_MAX:
        raise ConfigError("a JAAS string is too long")
    text = text.strip()
    words, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ConfigError("a JAAS string has a quotation mark without its end")
        quoted, bare, sign = found.groups()
        if quoted is not None:
            words.append((re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), False))
        else:
            words.append((bare, False) if bare is not None else (sign, True))
        position = found.end()
    return words
