"""Where the client finds the service and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from erelong.client.profile import find_profile


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with two profiles."""
    (tmp_path / "erelong").mkdir()
    (tmp_path / "key").write_text("from-file\n")
    (tmp_path / "erelong" / "cli.toml").write_text(
        f'[profiles.default]\nurl = "https://a"\nkey_file = "{tmp_path}/key"\n'
        '[profiles.prod]\nurl = "https://p"\nkey_command = ["echo", "from-command"]\nconfirm = true\n'
    )
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def found(environment: dict[str, str], url: str | None = None, key: str | None = None) -> tuple[str, str | None, bool]:
    profile = find_profile(url, key, environment=environment)
    return profile.url, profile.key, profile.confirm


def test_arguments_precede_the_environment_which_precedes_profiles(home: dict[str, str]) -> None:
    environment = home | {"ERELONG_URL": "http://e/", "ERELONG_KEY": "from-env"}

    assert found({"XDG_CONFIG_HOME": "/nowhere"}) == ("http://127.0.0.1:8080", None, False)
    assert found(home) == ("https://a", "from-file", False)
    assert found(home | {"ERELONG_PROFILE": "prod"}) == ("https://p", "from-command", True)
    assert found(environment) == ("http://e", "from-env", False)
    assert found(environment, "http://x", "mine") == ("http://x", "mine", False)


def test_key_is_not_sent_to_another_url_than_its_own(home: dict[str, str]) -> None:
    assert found(home, "http://other") == ("http://other", None, False)
    assert found(home | {"ERELONG_URL": "http://e", "ERELONG_KEY": "k"}, "http://other")[1] is None
    assert found({"XDG_CONFIG_HOME": "/nowhere", "ERELONG_KEY": "k"}, "http://x")[1] == "k"
    assert found(home | {"ERELONG_URL": "http://e"}) == ("http://e", None, False)
    assert found(home | {"ERELONG_URL": "http://e", "ERELONG_PROFILE": "prod"})[:2] == ("http://e", None)


def test_profile_that_an_argument_names_precedes_the_environment(home: dict[str, str]) -> None:
    environment = home | {"ERELONG_URL": "http://e", "ERELONG_KEY": "from-env"}

    named = find_profile(name="prod", environment=environment)

    assert (named.url, named.key) == ("https://p", "from-command")
    assert find_profile(name="prod", environment=home | {"ERELONG_KEY": "from-env"}).key == "from-command"
    assert find_profile(environment=home | {"ERELONG_KEY": "from-env"}).key == "from-env"
    assert find_profile("http://other", name="prod", environment=environment).key is None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ERELONG_PROFILE": "gone"}, "no profile 'gone' in .*; known: default, prod"),
        ({"ERELONG_KEY_FILE": "/no/such/file"}, "the key file /no/such/file cannot be read: No such file"),
        ({"ERELONG_URL": "localhost:8080"}, "'localhost:8080' is not the URL of a service"),
    ],
)
def test_what_does_not_exist_is_named(home: dict[str, str], environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_profile(environment=home | environment)


def test_key_command_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erelong.client.profile.KEY_COMMAND_TIMEOUT", 0.1)
    (tmp_path / "erelong").mkdir()
    (tmp_path / "erelong" / "cli.toml").write_text('[profiles.default]\nkey_command = ["sleep", "60"]\n')

    with pytest.raises(ValueError, match=r"key_command \['sleep', '60'\] has not ended within 0.1 s"):
        find_profile(environment={"XDG_CONFIG_HOME": str(tmp_path)})


def test_key_is_not_shown() -> None:
    assert "secret" not in repr(find_profile("http://x", "secret", environment={}))
