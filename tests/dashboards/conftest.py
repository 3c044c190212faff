"""After each test nobody observes what is evaluated."""

import pytest

from daskgrad.tasks import observers


@pytest.fixture(autouse=True)
def nobody_observes():
    yield
    assert observers.observers == ()
