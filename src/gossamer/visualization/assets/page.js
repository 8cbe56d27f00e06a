"use strict";
(() => {
  const { themes, charts } = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const options = { displayModeBar: false, responsive: true };
  const chosen = {};

  // Plotly writes into what it is given, so it gets a copy.
  const draw = (name, template) => {
    const { data, layout } = structuredClone(charts[name][chosen[name] ?? 0]);
    return Plotly.react(name, data, { ...layout, template }, options);
  };
  const theme = () => (dark.matches ? themes.dark : themes.light);
  const drawAll = (template) => Promise.all(Object.keys(charts).map((name) => draw(name, template)));

  for (const choice of document.querySelectorAll("select[data-chart]")) {
    choice.addEventListener("change", () => {
      chosen[choice.dataset.chart] = Number(choice.value);
      draw(choice.dataset.chart, theme());
    });
  }
  dark.addEventListener("change", () => drawAll(theme()));
  window.addEventListener("beforeprint", () => drawAll(themes.light));
  window.addEventListener("afterprint", () => drawAll(theme()));
  drawAll(theme()).then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
