// Draws every [data-chart]: the figure comes as JSON, colors from the stylesheet, Plotly only when needed.
"use strict";
(() => {
  // The bundle would add an inline style sheet for maps unless an element of this id is there; the
  // policy forbids inline styles and there are no maps. A browser test tells when the id changes.
  const MAP_STYLES = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
  let plotly;
  const load = (source) => {
    plotly ??= new Promise((resolve, reject) => {
      if (window.Plotly) { resolve(window.Plotly); return; }
      if (!document.getElementById(MAP_STYLES)) {
        const placeholder = document.createElement("meta");
        placeholder.id = MAP_STYLES;
        document.head.append(placeholder);
      }
      const script = document.createElement("script");
      script.src = source;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => { plotly = undefined; reject(new Error("Plotly did not load")); };
      document.head.append(script);
    });
    return plotly;
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const themed = (figure) => {
    const { data: drawn, layout } = structuredClone(figure);
    for (const trace of drawn) {
      const meaning = trace.meta?.meaning;
      if (!meaning) continue;
      if (trace.marker) {
        trace.marker.color = color(meaning);
        if (trace.marker.pattern?.shape) { trace.marker.color = color(`${meaning}-track`); trace.marker.pattern.fgcolor = color(meaning); }
        trace.marker.line = { ...trace.marker.line, color: color(meaning) };
      }
      if (trace.line) trace.line.color = color(meaning);
      if (trace.type === "heatmap") trace.colorscale = [[0, color("surface")], [1, color(meaning)]];
    }
    // Waiting is a thin line over dark bars: a rim in the color of the page lets it be seen.
    const rim = (trace) => ({ ...trace, meta: {}, hovertemplate: undefined, hoverinfo: "skip",
      line: { ...trace.line, color: color("surface"), width: trace.line.width + 3, dash: "solid" } });
    const data = drawn.flatMap((trace) => (trace.meta?.meaning === "pending" && trace.line ? [rim(trace), trace] : [trace]));
    const ink = color("ink-2"), grid = color("line");
    layout.font = { ...layout.font, color: ink, family: getComputedStyle(document.body).fontFamily };
    layout.hoverlabel = { bgcolor: color("raised"), bordercolor: grid, font: { color: color("ink") } };
    for (const axis of ["xaxis", "yaxis"]) Object.assign((layout[axis] ??= {}), { gridcolor: grid, linecolor: grid, zerolinecolor: grid });
    return { data, layout };
  };
  // Names of bars get as much room as the box has for them; the table beside it has them whole.
  const fitNames = ({ data, layout }, width) => {
    if (data[0]?.orientation !== "h") return;
    if (width < 480) layout.margin.l = 104;
    const most = Math.floor(layout.margin.l / 7), names = data[0].y;
    const short = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
    Object.assign(layout.yaxis, { tickmode: "array", tickvals: names, ticktext: names.map(short) });
  };
  const draw = async (box) => {
    const source = document.getElementById(box.dataset.chart);
    if (!source) return;
    try {
      const Plotly = await load(box.dataset.plotly);
      if (!box.isConnected) return;
      const figure = themed(JSON.parse(source.textContent));
      fitNames(figure, box.clientWidth);
      const { data, layout } = figure;
      box.querySelector(":scope > .loading")?.remove();
      await Plotly.react(box, data, layout, { displayModeBar: false, responsive: true });
      box.dataset.drawn = "true";
    } catch (error) {
      const words = box.querySelector(":scope > .loading");
      if (words) words.textContent = "The chart could not be drawn. The table beside it has the same numbers.";
      console.warn(error);
    }
  };
  const all = (root) => root.querySelectorAll("[data-chart]").forEach(draw);
  document.addEventListener("DOMContentLoaded", () => all(document));
  document.addEventListener("htmx:load", (event) => all(event.detail.elt.parentElement || document));
  // A sheet is narrower than a window, and no chart hears of it by itself.
  const onSheet = (width) =>
    document.querySelectorAll(".js-plotly-plot").forEach((chart) => window.Plotly.relayout(chart, { width }));
  addEventListener("beforeprint", () => onSheet(660));
  addEventListener("afterprint", () => onSheet(null));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(document));
})();
