"""Time-zone rules: the newest there are, zones by name, and names that are refused with the closest one."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest

from erelong.clock.zones import UNKNOWN_VERSION, Zones, by_version, load_zones

NOON = datetime(2027, 7, 1, 12)


@pytest.fixture(scope="module")
def zones() -> Zones:
    return load_zones({})


@pytest.fixture(scope="module")
def rules() -> bytes:
    """The rules of a zone, as a file has them."""
    return files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()


def make_folder(place: Path, *, version: str = "", file: str = "tzdata.zi", **zones: bytes) -> Path:
    place.mkdir()
    if version:
        (place / file).write_text(f"# version {version}\n# more\n" if file == "tzdata.zi" else f"{version}\n")
    for name, text in zones.items():
        (place / name).write_bytes(text)
    return place


def test_zones_are_found_by_name_and_have_a_version(zones: Zones) -> None:
    assert zones.find("Europe/Berlin").utcoffset(NOON) == timedelta(hours=2)
    assert zones.find("America/Argentina/Buenos_Aires").utcoffset(NOON) == timedelta(hours=-3)
    assert zones.find("UTC") is UTC
    assert "2025b" <= zones.version <= "2100a"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Berlin", 'no time zone "Berlin"; the closest is "Europe/Berlin"'),
        ("europe/berlin", 'no time zone "europe/berlin"; the closest is "Europe/Berlin"'),
        ("Europe/Berlni", 'no time zone "Europe/Berlni"; the closest is "Europe/Berlin"'),
        ("new york", 'no time zone "new york"; the closest is "America/New_York"'),
        ("utc", 'no time zone "utc"; the closest is "UTC"'),
        ("Mars", 'no time zone "Mars"; send a name of the IANA database, such as "Europe/Berlin"'),
        ("+02:00", 'no time zone "+02:00"; send a name of the IANA database, such as "Europe/Berlin"'),
        ("", 'no time zone ""; send a name of the IANA database, such as "Europe/Berlin"'),
        (
            "../../../etc/passwd",
            'no time zone "../../../etc/passwd"; send a name of the IANA database, such as "Europe/Berlin"',
        ),
        ("/etc/localtime", 'no time zone "/etc/localtime"; send a name of the IANA database, such as "Europe/Berlin"'),
        ("tzdata.zi", 'no time zone "tzdata.zi"; send a name of the IANA database, such as "Europe/Berlin"'),
        ("Europe", 'no time zone "Europe"; send a name of the IANA database, such as "Europe/Berlin"'),
        ("posix/UTC", 'no time zone "posix/UTC"; send a name of the IANA database, such as "Europe/Berlin"'),
    ],
)
def test_name_that_is_no_zone_is_refused_with_the_closest_one(zones: Zones, name: str, fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its whole text is compared
        zones.find(name)

    assert str(refused.value) == fault


def test_endless_name_is_refused_in_a_bounded_length(zones: Zones) -> None:
    with pytest.raises(ValueError, match=r"\.\.\.") as refused:
        zones.find("Zone" * 10_000)

    assert len(str(refused.value)) < 200


def test_newest_rules_come_first_and_those_without_a_version_last(tmp_path: Path) -> None:
    system = make_folder(tmp_path / "system", version="2025b")
    package = make_folder(tmp_path / "package", version="2026f")
    other = make_folder(tmp_path / "other", version="2026f", file="+VERSION")
    nameless = make_folder(tmp_path / "nameless")

    assert by_version([nameless, system, package, other]) == [package, other, system, nameless]
    assert by_version([other, package]) == [other, package]


def test_zone_that_the_newest_rules_lack_is_read_from_the_others(tmp_path: Path, rules: bytes) -> None:
    newer = make_folder(tmp_path / "newer", version="2026f")
    older = make_folder(tmp_path / "older", version="2025b", Japan=rules)

    zones = Zones([newer, older])

    assert zones.version == "2026f"
    assert zones.find("Japan").utcoffset(NOON) == timedelta(hours=9)


def test_pythontzpath_alone_is_used_if_it_is_set(tmp_path: Path, rules: bytes) -> None:
    own = make_folder(tmp_path / "own", version="2001c", Here=rules)

    zones = load_zones({"PYTHONTZPATH": os.pathsep.join([str(tmp_path / "missing"), "relative", str(own)])})

    assert zones.version == "2001c"
    assert zones.find("Here").utcoffset(NOON) == timedelta(hours=9)
    with pytest.raises(ValueError, match="no time zone"):
        zones.find("Europe/Berlin")


@pytest.mark.parametrize(("version", "is_chosen"), [("2099a", True), ("1999a", False), ("", False)])
def test_system_is_used_if_it_is_newer_than_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_chosen: bool
) -> None:
    system = make_folder(tmp_path / "system", version=version)
    monkeypatch.setattr("sysconfig.get_config_var", {"TZPATH": f"/missing{os.pathsep}{system}"}.get)

    found = load_zones({})

    assert (found.version == version) is is_chosen
    assert found.find("Europe/Berlin").utcoffset(NOON) == timedelta(hours=2)


def test_pythontzpath_without_a_folder_leaves_the_package_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make_folder(tmp_path / "system", version="2099a")
    monkeypatch.setattr("sysconfig.get_config_var", {"TZPATH": str(system)}.get)

    for nowhere in ("", "/missing"):
        packaged = load_zones({"PYTHONTZPATH": nowhere})

        assert "2025b" <= packaged.version < "2099a"
        assert packaged.find("Europe/Berlin").utcoffset(NOON) == timedelta(hours=2)


def test_rules_without_a_version_say_so(tmp_path: Path, rules: bytes) -> None:
    own = make_folder(tmp_path / "own", Here=rules)

    assert load_zones({"PYTHONTZPATH": str(own)}).version == UNKNOWN_VERSION
    assert Zones([]).version == UNKNOWN_VERSION


def test_utc_needs_no_rules() -> None:
    assert Zones([]).find("UTC") is UTC


def test_zone_is_read_once_and_newer_rules_are_another_object(tmp_path: Path, rules: bytes) -> None:
    own = make_folder(tmp_path / "own", version="2026f", Here=rules)
    earlier = load_zones({"PYTHONTZPATH": str(own)})
    zone = earlier.find("Here")

    (own / "Here").unlink()
    later = load_zones({"PYTHONTZPATH": str(own)})

    assert earlier.find("Here") is zone
    with pytest.raises(ValueError, match="no time zone"):
        later.find("Here")


def test_rules_that_are_cut_short_anywhere_are_no_rules(tmp_path: Path, rules: bytes) -> None:
    own = make_folder(tmp_path / "own")
    for length in range(len(rules)):
        (own / "Here").write_bytes(rules[:length])
        with pytest.raises(ValueError, match="no time zone"):
            Zones([own]).find("Here")


def test_folder_that_was_removed_leaves_no_name_to_suggest(tmp_path: Path) -> None:
    zones = Zones([make_folder(tmp_path / "own", version="2026f")])
    (tmp_path / "own" / "tzdata.zi").unlink()
    (tmp_path / "own").rmdir()

    with pytest.raises(ValueError, match="send a name of the IANA database"):
        zones.find("Berlin")
