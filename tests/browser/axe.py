"""axe-core on a page as it stands now.

The script comes with an installed package and is run through the driver's protocol, so that the
page keeps the policy that its readers have. It asks for nothing: styles that it would load again
are read where they are.
"""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

# What a color scheme can break; the others see no difference.
OF_COLOR = "cat.color"
# Off unless it is asked for, though WCAG 2.2 AA (2.5.8) wants it.
ALSO = "target-size"
STILL = """
() => {
  for (const name of ["htmx:beforeRequest", "htmx:beforeSwap"])
    document.addEventListener(name, (event) => event.preventDefault());
}
"""
LOOK = """
async ([tag, also]) => {
  // Asked for by its tag, a rule of AAA would be on.
  const some = () => axe.getRules([tag]).filter((rule) => !rule.tags.includes("wcag2aaa"));
  const found = await axe.run(document, {
    ...(tag ? { runOnly: some().map((rule) => rule.ruleId) } : {}),
    rules: { [also]: { enabled: !tag } },
    resultTypes: ["violations"],
    preload: false,
    iframes: false,
  });
  const kinds = ["violations", "passes", "incomplete", "inapplicable"];
  const words = (rule, node) => {
    const why = [...node.any, ...node.all, ...node.none].map((check) => check.message);
    const where = `${node.target.join(" ")} (${node.html.slice(0, 160)})`;
    return `${rule.id}: ${where}: ${why.join("; ")}`;
  };
  return {
    faults: found.violations.flatMap((rule) => rule.nodes.map((node) => words(rule, node))),
    rules: kinds.flatMap((kind) => found[kind].map((rule) => rule.id)),
  };
}
"""


def start(page: Page) -> None:
    """Bring the script into the document that is open; what asks again by itself stands still."""
    page.evaluate(STILL)
    page.evaluate(AXE_SCRIPT)


def look(page: Page, tag: str = "") -> tuple[list[str], set[str]]:
    """What breaks a rule, in words, and the rules that were asked.

    Args:
        page: With the script in it.
        tag: Only the rules of this tag.
    """
    found = page.evaluate(LOOK, [tag, ALSO])
    return found["faults"], set(found["rules"])
