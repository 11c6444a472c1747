"""Fixtures that several files share."""

from __future__ import annotations

import shutil

import pytest

from live.signing import Sign, signer


@pytest.fixture(scope="module")
def sign(tmp_path_factory) -> Sign:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which signs, is not installed")
    return signer(tmp_path_factory.mktemp("signed"))
