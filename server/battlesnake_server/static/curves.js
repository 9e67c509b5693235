// Shows the values of a chart's curves at the pointer (charts of run_parts.html).

const cache = new WeakMap(); // polyline -> [[x, y], ...] in the SVG's coordinates

function points(line) {
  if (!cache.has(line)) {
    const pairs = line.getAttribute("points").trim().split(" ");
    cache.set(line, pairs.map((pair) => pair.split(",").map(Number)));
  }
  return cache.get(line);
}

const interpolate = (range, fraction) => range[0] + (range[1] - range[0]) * fraction;
const parseRange = (text) => text.split(" ").map(Number);
const format = (value) => Number(value.toPrecision(4)).toLocaleString("en");

function showTooltip(chart, x) {
  const readout = chart.closest(".plot").querySelector(".readout");
  const cursor = chart.querySelector(".cursor");
  cursor.setAttribute("visibility", x === null ? "hidden" : "visible");
  readout.replaceChildren();
  if (x === null) return;
  cursor.setAttribute("x1", x);
  cursor.setAttribute("x2", x);
  readout.append(`${format(interpolate(parseRange(chart.dataset.x), x / 1000))} ${chart.dataset.title}: `);
  let first = true;
  for (const line of chart.querySelectorAll("polyline")) {
    const values = points(line);
    if (x < values[0][0]) continue; // the curve starts to the right of the pointer
    const nearest = values.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    const value = document.createElement("b");
    value.textContent = format(interpolate(parseRange(chart.dataset.y), 1 - nearest[1] / 400));
    readout.append(first ? "" : ", ", `${line.dataset.name} `, value);
    first = false;
  }
}

document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.("svg[data-chart]");
  for (const other of document.querySelectorAll("svg[data-chart]")) {
    if (other !== chart) showTooltip(other, null);
  }
  if (!chart) return;
  const box = chart.getBoundingClientRect();
  const x = (1000 * (event.clientX - box.left)) / box.width;
  showTooltip(chart, Math.min(Math.max(x, 0), 1000));
});
