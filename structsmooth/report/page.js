// Figures of Bokeh in the colours of the page, and the axis that curves are drawn against.
"use strict";

const parts = {
  axis: ["axis_label_text_color", "major_label_text_color", "axis_line_color", "major_tick_line_color", "minor_tick_line_color"],
  grid: ["grid_line_color"],
  legend: ["label_text_color"],
  text: ["text_color"],
  scale: ["major_label_text_color", "title_text_color"],
};

function models() {
  return Bokeh.documents.flatMap((document) => [...document.all_models]);
}

function kind(model) {
  if (model.type.endsWith("Axis")) return "axis";
  return { Grid: "grid", Legend: "legend", Text: "text", ColorBar: "scale" }[model.type];
}

function paint() {
  const style = getComputedStyle(document.documentElement);
  const colours = { axis: "--muted", grid: "--rule", legend: "--text", text: "--text", scale: "--muted" };
  for (const model of models()) {
    const own = kind(model);
    if (!own) continue;
    const colour = style.getPropertyValue(colours[own]).trim();
    model.setv(Object.fromEntries(parts[own].map((name) => [name, colour])));
  }
}

function drawAgainst(column, label) {
  for (const model of models()) {
    if (model.type === "GlyphRenderer" && model.name === "curve") model.glyph.x = { field: column };
    if (model.name === "chosen") model.axis_label = label;
  }
}

async function draw() {
  for (const place of document.querySelectorAll(".plot")) {
    await Bokeh.embed.embed_item(JSON.parse(place.nextElementSibling.textContent), place);
  }
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  for (const option of document.querySelectorAll('input[name="axis"]')) {
    option.addEventListener("change", () => drawAgainst(option.value, option.dataset.label));
  }
  document.documentElement.dataset.drawn = "yes";
}

draw();
