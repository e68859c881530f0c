"""A small document over https: verified, bounded, without redirects. Not for the event loop."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

_BYTES_MAX: Final = 1 << 20
_SECONDS_MAX: Final = 5.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch(url: str, context: ssl.SSLContext | None = None) -> str:
    """The text at an address; OSError where it cannot be had.

    Proxies of the environment are not used: nobody but the settings says whom the broker asks.
    """
    if urlsplit(url).scheme != "https":
        raise OSError(f"{url} is not https")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        _NoRedirect(),
        urllib.request.HTTPSHandler(context=context or ssl.create_default_context()),
    )
    try:
        with opener.open(url, timeout=_SECONDS_MAX) as answer:
            data: bytes = answer.read(_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"{url} answers {error.code}") from None
    except (HTTPException, ValueError) as error:
        raise OSError(f"{url} does not answer: {error}") from None
    if len(data) > _BYTES_MAX:
        raise OSError(f"{url} gives more than {_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OSError(f"{url} gives no text") from None
