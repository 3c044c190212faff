"""Keys: the names of many models are remembered, the latest ones, and cheaply."""

from daskgrad.tasks import keys


class Watched(dict):
    """Counts the keys that are gone through."""

    seen = 0

    def __iter__(self):
        for key in super().__iter__():
            self.seen += 1
            yield key


def test_the_names_of_more_models_than_are_remembered_are_seldom_copied(monkeypatch):
    named = Watched()
    monkeypatch.setattr(keys, "_named", named)
    monkeypatch.setattr(keys, "NAMES", 800)
    names, count = keys.Names(), 4000
    for number in range(count):
        names.key("value", f"model{number}")
        assert len(named) <= 800
    assert named.seen < 10 * count
    assert [*named.values()] == [f"model{number}" for number in range(count - len(named), count)]
