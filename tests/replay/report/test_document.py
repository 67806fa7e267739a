"""The document of a report: it is self-contained, text from clients is data in it, and it is never too long."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import msgspec
import pytest

from muster.replay.html.document import PAGE_BYTES_MAX, in_script
from muster.replay.report import html
from tests.replay.histories import Script
from tests.replay.report.told import busy, document_of, hostile
from tests.replay.stories import a_night

END_TAG = "</script><script>alert(1)</script>"


class Nesting(HTMLParser):
    """Checks that each tag is closed in order, and collects all ids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        if tag not in {"meta", "input"}:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value is not None]

    def handle_endtag(self, tag: str) -> None:
        """Check that the tag was the last one opened."""
        assert self.open.pop() == tag, (tag, self.getpos())


@pytest.fixture(scope="module")
def night() -> str:
    return document_of(a_night().history())


@pytest.mark.parametrize("group", ["a night", END_TAG, "\"'><b id=x>"])
def test_its_tags_are_closed_and_its_ids_are_its_own(night: str, group: str) -> None:
    """Each label and link has a target."""
    document = night if group == "a night" else document_of(hostile(group).history())
    nesting = Nesting()
    nesting.feed(document)
    assert nesting.open == []
    assert len(set(nesting.ids)) == len(nesting.ids)
    assert set(re.findall(r'(?:aria-labelledby|href)="#?(.*?)"', document)) <= set(nesting.ids)


def test_its_policy_allows_its_own_script_and_style_alone(night: str) -> None:
    """It has their hashes, and no host."""
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.+?)"', night)
    allowed = dict(part.split(" ", 1) for part in policy.replace("&#39;", "'").split("; "))
    assert allowed.keys() == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert {allowed[name] for name in ("default-src", "base-uri", "form-action")} == {"'none'"}
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", night, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert allowed[name] == f"'sha256-{digest}'"


def test_it_makes_no_requests(night: str) -> None:
    """It has no address except the name of SVG, no source, and no style that the policy would refuse."""
    assert set(re.findall(r"\w+://[^\"'<\s]*", night)) == {"http://www.w3.org/2000/svg"}
    assert {each[:9] for each in re.findall(r'(?:href|src)="(.*?)"', night)} == {"#incident"}
    assert not re.findall(r"<[^>]+ (style|on\w+)=", night)


def test_client_strings_are_escaped() -> None:
    """Neither in the text nor in the embedded JSON."""
    document = document_of(hostile(END_TAG).history())
    assert "alert(1)" in document
    assert END_TAG not in document
    assert document.count("<script") == 2
    assert document.count("</script") == 2


@pytest.mark.parametrize("text", [END_TAG, "<!--<script>", "]]>", "a\u2028b\u2029c", "&lt;", "'\"\\"])
def test_json_in_a_script_is_the_same_and_cannot_end_it(text: str) -> None:
    """Whatever it contains."""
    encoded = in_script({text: text})
    assert not set(encoded) & set("<>&'\u2028\u2029")
    assert msgspec.json.decode(encoded) == {text: text}


def test_ten_thousand_events_fit() -> None:
    """Without leaving anything out."""
    document = document_of(busy(10_000).history())
    assert len(document.encode()) < PAGE_BYTES_MAX
    assert "left out." not in document


def test_a_page_that_is_too_long_shows_less_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """And reports what it left out."""
    script = busy(3_000)
    whole = len(document_of(script.history()).encode())
    monkeypatch.setattr(html, "PAGE_BYTES_MAX", whole // 2)
    document = document_of(script.history())
    assert len(document.encode()) <= whole // 2
    assert re.search(r"The \d+ earliest incidents that cost less are left out\.", document)


def test_long_names_of_many_members_do_not_make_it_long() -> None:
    """Members with client ids of 30 KB each."""
    script = Script("long").coordinator("coordinator-a:100").created()
    names = [f"{number}-{30_000 * '<'}" for number in range(300)]
    members = [script.member(f"m{number}", client_id=name) for number, name in enumerate(names)]
    script.start(*map(script.joined, members)).wait(100).complete().stabilize({})
    document = document_of(script.history())
    assert len(document.encode()) < PAGE_BYTES_MAX
    assert "The 100 earliest processes are left out." in document
