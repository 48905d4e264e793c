"""The picture of the README is drawn from the screen of a terminal emulator."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pyte
import pytest
from scripts.pictures import DEMOS, drawn

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[tuple[str, dict[str, str]]]:
    return [(one.text or "", one.attrib) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_picture_has_the_cells_of_the_screen_with_their_looks():
    screen = pyte.Screen(96, 60)
    pyte.Stream(screen).feed("old\r\nfirst <one>\r\n\x1b[1;31mkill\x1b[0m now\r\nlast\r\nrest")
    _, first, kill, now, last = texts(drawn(screen, DEMOS[0]._replace(first="first", last="last")))
    assert [text.strip() for text, _ in (first, kill, now, last)] == ["first <one>", "kill", "now", "last"]
    assert (kill[1]["fill"], kill[1]["font-weight"]) == ("#ff7b72", "bold")
    assert float(now[1]["x"]) == pytest.approx(float(kill[1]["x"]) + 4 * 8.4, abs=0.1)


def test_the_readme_opens_with_a_picture_that_can_be_read():
    [path] = re.findall(r"!\[[^]]+\]\((.+?\.svg)\)", (ROOT / "README.md").read_text("utf-8"))
    assert any("kill -9" in text for text, _ in texts((ROOT / path).read_text("utf-8")))
