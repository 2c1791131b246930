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
(isStill) => {
  if (window.axeStill === undefined)
    for (const name of ["htmx:beforeRequest", "htmx:beforeSwap"])
      document.addEventListener(name, (event) => { if (window.axeStill) event.preventDefault(); });
  window.axeStill = isStill;
  return window.axe === undefined;
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


def in_both_schemes(page: Page) -> tuple[dict[str, list[str]], set[str]]:
    """All rules in the light scheme, and those of color once more in the dark one.

    What asks again by itself stands still meanwhile.

    Returns:
        Scheme → what breaks a rule there, in words, if anything; and the rules that were asked.
    """
    if page.evaluate(STILL, True):
        page.evaluate(AXE_SCRIPT)
    faults, asked = {}, set[str]()
    for scheme, tag in (("light", ""), ("dark", OF_COLOR)):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(LOOK, [tag, ALSO])
        faults[scheme] = found["faults"]
        asked |= set(found["rules"])
    page.emulate_media(color_scheme="light")
    page.evaluate(STILL, False)
    return {scheme: found for scheme, found in faults.items() if found}, asked
