"""Look at the built documentation as a reader's browser does: no broken link, no picture without
words, no script error, nothing wider than a phone, and text that can be read in both themes.

    python tools/check_site.py site
"""

from __future__ import annotations

import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from chromium import Chromium, find_chromium

PHONE, DESK = 390, 1200
NO_WORDS = "No description has been provided for this image"  # what notebooks without words get
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA, for text of normal size
# Colours on their way from one to another are no colours.
STILL = (
    "document.head.append(Object.assign(document.createElement('style'), "
    "{textContent: '* { transition: none !important }'}))"
)
# Of each text on the page the contrast with what is behind it, where that is one colour.
CONTRASTS = """
(() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((v, i) => a * v + (1 - a) * under[i]);
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) layers.push(colour);
      if (colour.length === 3) break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest("svg, script, style, .md-footer, .md-header, .headerlink, .md-skip")) continue;
    const style = getComputedStyle(node);
    if (Number(style.opacity) < 1 || style.fontSize === "0px") continue;
    const under = behind(node), text = over(parts(style.color), under);
    const [high, low] = [light(text), light(under)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : LEAST)) {
      found[`${node.tagName}.${node.className}: ${ratio.toFixed(1)}`] =
        walker.currentNode.textContent.trim().slice(0, 30);
    }
  }
  return found;
})()
""".replace("LEAST", str(LEAST_CONTRAST))


class Page(HTMLParser):
    """Links, places that links can point to, and pictures without words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.wordless: list[str] = []
        self.quoted = self.deepest = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.places |= {given[name] or "" for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if given.get(name) and tag not in ("base",):
                self.links.append(given[name] or "")
        if tag == "img" and (given.get("alt") or "").strip() in ("", NO_WORDS):
            self.wordless.append(given.get("src") or "")
        self.quoted += tag == "blockquote"
        self.deepest = max(self.deepest, self.quoted)

    def handle_endtag(self, tag: str) -> None:
        self.quoted -= tag == "blockquote"


def broken_links(site: Path) -> list[str]:
    """Links within the site to files or places that are not there."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith(("data:", "javascript:")):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                target in pages and unquote(parts.fragment) not in {"", *pages[target].places}
            ):
                found.append(f"{path.relative_to(site)}: {link}")
        found += [f"{path.relative_to(site)}: no words for {image}" for image in page.wordless]
        if page.deepest > 2:  # what Markdown makes of >>>
            found.append(f"{path.relative_to(site)}: a doctest is shown as a quotation")
    return found


def seen_problems(site: Path, executable: str) -> list[str]:
    """What a browser complains about, or a reader would."""
    found = []
    with Chromium(executable) as browser:
        found += search_problems(browser, site)
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site)
            if path.name == "404.html":
                continue
            for width, dark in ((PHONE, False), (DESK, True)):
                browser.problems.clear()
                browser.open(path, width, dark)
                if browser.evaluate("localStorage.length"):  # the theme of the page before
                    browser.evaluate("localStorage.clear()")
                    browser.open(path, width, dark)
                found += [f"{name}: {problem}" for problem in browser.problems]
                if width == PHONE:
                    wide = browser.evaluate("document.documentElement.scrollWidth")
                    found += [f"{name}: {wide} pixels wide on a phone"] if wide > PHONE else []
                browser.evaluate(STILL)
                faint = browser.evaluate(CONTRASTS)
                theme = "dark" if dark else "light"
                found += [f"{name} ({theme}): {what} «{text}»" for what, text in faint.items()]
    return found


def search_problems(browser: Chromium, site: Path) -> list[str]:
    """Search for a word as a reader would who opened the page from a file."""
    browser.open(site / "index.html", 1400, False)
    browser.send("Emulation.setFocusEmulationEnabled", enabled=True)
    x, y = browser.evaluate(
        "(({x, y}) => [x + 20, y + 10])"
        "(document.querySelector('.md-search__input').getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    time.sleep(1.0)
    browser.send("Input.insertText", text="verdict")
    browser.send("Input.dispatchKeyEvent", type="keyUp", key="t")
    foreign = [request for request in browser.requests if request.startswith("http")]
    for _ in range(120):
        time.sleep(0.5)
        if browser.evaluate("document.querySelectorAll('.md-search-result__item').length"):
            return [f"a page asks another server for {request}" for request in foreign]
    return ["search finds nothing", *foreign]


def main() -> None:
    """Print what is wrong and end with 1, or with 0 where nothing is."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    found = broken_links(site)
    executable = find_chromium()
    if executable is None:
        print("There is no Chromium: links were checked, pages were not looked at.")
    else:
        found += seen_problems(site, executable)
    print("\n".join(found) or f"{len(list(site.rglob('*.html')))} pages: nothing to complain about")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
