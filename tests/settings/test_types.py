"""Settings of webhooks: accepted values, and refusals that never show a secret."""

from __future__ import annotations

from base64 import b64encode
from ipaddress import ip_network
from pathlib import Path

import pytest

from erelong.settings.load import load
from erelong.settings.section import ConfigError
from erelong.settings.sections import Config

KEY = b64encode(bytes(range(32))).decode()
SHORT = b64encode(b"x" * 23).decode()


def settings(tmp_path: Path, text: str = "", **env: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load(path, env)


def test_networks_are_read(tmp_path: Path) -> None:
    config = settings(tmp_path, "[webhooks]\nallow_networks = ['10.0.0.0/8', '::1', '192.168.1.7']")

    assert config.webhooks.allow_networks == [
        ip_network("10.0.0.0/8"),
        ip_network("::1/128"),
        ip_network("192.168.1.7/32"),
    ]


def test_secrets_come_from_variables_and_files(tmp_path: Path) -> None:
    (tmp_path / "signing").write_text(f"whsec_{KEY}\nwhsec_{KEY}\n")
    (tmp_path / "crm").write_text("12345678\n")

    config = settings(
        tmp_path,
        "[webhooks.secrets.crm]\norigins = ['https://CRM.example:443', 'http://10.0.0.5:8000']",
        ERELONG_WEBHOOKS__SIGNING_SECRETS_FILE=str(tmp_path / "signing"),
        ERELONG_WEBHOOKS__SECRETS__CRM__VALUE_FILE=str(tmp_path / "crm"),
        ERELONG_WEBHOOKS__PROXY="http://u:canary@proxy.example:3128",
        ERELONG_WEBHOOKS__ALLOW_NETWORKS='["10.0.0.0/8"]',
    )

    assert [secret.get_secret_value() for secret in config.webhooks.signing_secrets] == [f"whsec_{KEY}"] * 2
    assert config.webhooks.secrets["crm"].value.get_secret_value() == "12345678"
    assert config.webhooks.secrets["crm"].origins == ["https://crm.example", "http://10.0.0.5:8000"]
    assert config.webhooks.proxy.get_secret_value() == "http://u:canary@proxy.example:3128"


def test_one_signing_secret_needs_no_brackets(tmp_path: Path) -> None:
    config = settings(tmp_path, ERELONG_WEBHOOKS__SIGNING_SECRETS=f"whsec_{KEY}")

    assert [secret.get_secret_value() for secret in config.webhooks.signing_secrets] == [f"whsec_{KEY}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "allow_networks = ['10.0.0.1/8']",
            "allow_networks.0: should be a network such as 10.0.0.0/8 or fd00::/8: 10.0",
        ),
        ("allow_networks = ['intranet']", "allow_networks.0: should be a network such as"),
        ("allow_networks = [true]", "allow_networks.0: should be a network such as"),
        ("allow_networks = '10.0.0.0/8'", 'allow_networks = "10.0.0.0/8": should be a valid list'),
        (f"signing_secrets = ['{KEY}']", "signing_secrets.0: should begin with whsec_; make one with: echo whsec_$("),
        ("signing_secrets = ['whsec_canary!']", "signing_secrets.0: is not base64 after whsec_; make one with"),
        ("signing_secrets = ['whsec_canary']", "signing_secrets.0: is not base64 after whsec_; make one with"),
        (f"signing_secrets = ['whsec_{SHORT}']", "signing_secrets.0: has 23 random bytes, but needs 24; make one"),
        ("signing_secrets = [12345678]", "signing_secrets.0: should be a valid string"),
        ("signing_secrets = { canary = 'canary' }", "signing_secrets: should be a valid list"),
        ("proxy = 'https://canary:canary@h'", "proxy: should be the URL of a proxy such as"),
        ("proxy = 'canary:3128'", "proxy: should be the URL of a proxy such as"),
        ("proxy = 'http://u:canary@h:1/path'", "proxy: should be the URL of a proxy such as"),
        ("proxy = ['canary']", "proxy: should be a valid string"),
        ("secrets = 'canary'", "secrets: should be a table"),
        ("secrets.crm = 'canary12'", "secrets.crm: should be a table"),
        ("secrets.crm = { value = 'canary12' }", "secrets.crm.origins: is required"),
        ("secrets.crm = { origins = ['https://h'] }", "secrets.crm.value: is required"),
        ("secrets.crm = { value = 'canary12', origins = [] }", "secrets.crm.origins: List should have at least 1 item"),
        (
            "secrets.crm = { value = 'canary', origins = ['https://h'] }",
            "secrets.crm.value: has 6 characters, but needs 8",
        ),
        (
            'secrets.crm = { value = "canary\\n12", origins = ["https://h"] }',
            "secrets.crm.value: has a character that no",
        ),
        ("secrets.crm = { value = 12345678, origins = ['https://h'] }", "secrets.crm.value: should be a valid string"),
        (
            "secrets.crm = { value = 'canary12', origins = ['h'] }",
            "secrets.crm.origins.0: should be an origin such as ht",
        ),
        (
            "secrets.crm = { value = 'canary12', origins = ['https://h/'] }",
            "secrets.crm.origins.0: should be an origin",
        ),
        (
            "secrets.crm = { value = 'canary12', origins = ['https://*.h/x'] }",
            "secrets.crm.origins.0: should be an ori",
        ),
        (
            "secrets.crm = { value = 'canary12', origins = ['https://u@h'] }",
            "secrets.crm.origins.0: should be an origi",
        ),
        ("secrets.crm = { value = 'canary12', origins = ['ftp://h'] }", "secrets.crm.origins.0: should be an origin"),
        (
            "secrets.crm = { value = 'canary12', origins = ['https://h'], valeu = 'canary' }",
            "secrets.crm.valeu: no such",
        ),
        ("secrets.'a b' = { value = 'canary12', origins = ['https://h'] }", 'secrets."a b": should be 1 to 100 of A-Z'),
        ("signing_secret = ['whsec_canary']", "signing_secret: no such setting; did you mean signing_secrets"),
    ],
)
def test_wrong_setting_is_reported_without_the_secret(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        settings(tmp_path, f"[webhooks]\n{text}\n")

    (message,) = refusal.value.problems
    assert message.partition(": webhooks.")[2].startswith(problem)
    for secret in ("canary", KEY, SHORT, "12345678"):
        assert secret not in message.replace("webhooks.signing_secrets.canary", "")


def test_settings_do_not_show_their_secrets(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        f"""\
[webhooks]
proxy = "http://u:canary@h:1"
signing_secrets = ["whsec_{KEY}"]
secrets.crm = {{ value = "canary12", origins = ["https://h"] }}
""",
    )

    for text in (repr(config), str(config), config.model_dump_json(), repr(config.webhooks.secrets)):
        assert "canary" not in text
        assert KEY not in text
