// Shows the values of curves under the pointer, for charts made by run_parts.html.

const cache = new WeakMap(); // polyline -> [[x, y], ...] as drawn

function points(line) {
  if (!cache.has(line)) {
    const pairs = line.getAttribute("points").trim().split(" ");
    cache.set(line, pairs.map((pair) => pair.split(",").map(Number)));
  }
  return cache.get(line);
}

const between = (range, part) => range[0] + (range[1] - range[0]) * part;
const range = (text) => text.split(" ").map(Number);
const short = (value) => Number(value.toPrecision(4)).toLocaleString("en");

function tell(chart, place) {
  const readout = chart.closest(".plot").querySelector(".readout");
  const cursor = chart.querySelector(".cursor");
  cursor.setAttribute("visibility", place === null ? "hidden" : "visible");
  readout.replaceChildren();
  if (place === null) return;
  cursor.setAttribute("x1", place);
  cursor.setAttribute("x2", place);
  readout.append(`${short(between(range(chart.dataset.x), place / 1000))} ${chart.dataset.title}: `);
  let first = true;
  for (const line of chart.querySelectorAll("polyline")) {
    const known = points(line);
    if (place < known[0][0]) continue; // it has not begun there
    const near = known.reduce((a, b) => (Math.abs(b[0] - place) < Math.abs(a[0] - place) ? b : a));
    const value = document.createElement("b");
    value.textContent = short(between(range(chart.dataset.y), 1 - near[1] / 400));
    readout.append(first ? "" : ", ", `${line.dataset.name} `, value);
    first = false;
  }
}

document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.("svg[data-chart]");
  for (const other of document.querySelectorAll("svg[data-chart]")) {
    if (other !== chart) tell(other, null);
  }
  if (!chart) return;
  const box = chart.getBoundingClientRect();
  const place = (1000 * (event.clientX - box.left)) / box.width;
  tell(chart, Math.min(Math.max(place, 0), 1000));
});
