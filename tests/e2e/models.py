"""The model files that make_models writes: small ones, and headers of large ones."""

import os
import pathlib
import subprocess

import pytest
from served import BIN

MAKE_MODELS = pathlib.Path(os.environ.get("QUIRE_MAKE_MODELS", pathlib.Path(BIN).parent / "bin/make_models"))


def make_models(folder):
    """A function from the name of a model to its path."""
    if not MAKE_MODELS.exists():
        pytest.fail(f"{MAKE_MODELS} is not built")
    subprocess.run([MAKE_MODELS, folder], check=True)
    return lambda name: str(pathlib.Path(folder) / f"{name}.gguf")


@pytest.fixture(scope="module", name="models")
def models_fixture(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))
