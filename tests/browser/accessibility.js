() => {
  const found = [];
  const visible = (el) => el.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
    && el.getClientRects().length > 0;
  const words = (el) => `${el.tagName.toLowerCase()} ${(el.outerHTML || "").slice(0, 120)}`;
  const named = (el) => (el.getAttribute("aria-label") || el.textContent || el.title || "").trim();

  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title.trim()) found.push("the page has no title");
  if (document.querySelectorAll("h1").length !== 1) found.push("the page has not one h1");
  if (document.querySelectorAll("main").length !== 1) found.push("the page has not one main");
  const ids = [...document.querySelectorAll("[id]")].map((el) => el.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) found.push(`id ${id} is there twice`);

  for (const el of document.querySelectorAll("a[href], button, summary")) {
    if (visible(el) && !named(el)) found.push(`no name: ${words(el)}`);
  }
  for (const el of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    const label = el.labels?.length || el.getAttribute("aria-label") || el.getAttribute("aria-labelledby");
    if (visible(el) && !label) found.push(`no label: ${words(el)}`);
    for (const id of (el.getAttribute("aria-describedby") || "").split(/\s+/).filter(Boolean)) {
      if (!document.getElementById(id)) found.push(`describes nothing (${id}): ${words(el)}`);
    }
  }
  for (const el of document.querySelectorAll("svg")) {
    if (el.getAttribute("aria-hidden") !== "true" && !el.getAttribute("aria-label") && !el.closest(".chart, #js-plotly-tester"))
      found.push(`picture without words: ${words(el)}`);
  }
  for (const el of document.querySelectorAll("table")) {
    if (!el.querySelector("th")) found.push(`table without headings: ${words(el)}`);
  }

  const parse = (text) => {
    const numbers = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (text.startsWith("color(srgb")) return [...numbers.slice(0, 3).map((n) => n * 255), numbers[3] ?? 1];
    return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3])).concat(1);
  const ground = (el) => {
    const layers = [];
    for (let at = el; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), el = walker.currentNode.parentElement;
    if (!text || !el || el.closest("svg, script, noscript, .visually-hidden, .skip, option, [disabled]") || !visible(el)) continue;
    const style = getComputedStyle(el), back = ground(el);
    const fore = over(parse(style.color), back);
    const [a, b] = [light(fore), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const key = `${style.color} on ${back.map(Math.round)}`;
    if (ratio < needed && !seen.has(key)) {
      seen.add(key);
      found.push(`contrast ${ratio.toFixed(2)}: ${key}: ${text.slice(0, 40)}`);
    }
  }
  return found;
}
