// Draws the charts of templates/charts.html with uPlot: <line-chart data-chart="...">. The legend below
// a chart has its colors, and shows the values at the pointer, or else the last values. The curves of a
// page share the horizontal axis and the pointer, which the arrow keys move if a chart has the focus.

const VALUE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const LARGE = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 3 });
const PERCENT = new Intl.NumberFormat("en", { style: "percent" });
// Range of the horizontal axis that a visitor chose. It stays if a live update replaces the charts.
let zoom = null;
const formatTick = (tick) => (Math.abs(tick) < 1e4 ? VALUE : LARGE).format(tick);

customElements.define("line-chart", class extends HTMLElement {
  connectedCallback() {
    const { curves, stacked } = JSON.parse(this.dataset.chart);
    const [place, ...values] = this.parentElement.querySelectorAll(".legend b");
    const dots = this.parentElement.querySelectorAll(".legend .dot");
    const variable = (name) => () => getComputedStyle(this).getPropertyValue(name);
    const edge = { points: { show: false } };
    const series = [{}];
    const bands = [];
    const tables = curves.map(([, , x, y, low, high], i) => {
      const color = () => getComputedStyle(dots[i]).fill;
      series.push({ stroke: stacked ? null : color, width: 2,
        points: { show: !stacked && x.length === 1, size: 9, fill: color } }, edge, edge);
      bands.push({ series: [3 * i + 3, 3 * i + 2],
        fill: stacked ? color : () => color().replace(")", ", 0.15)").replace("rgb(", "rgba(") });
      return [x, y, low ?? y, high ?? y];
    });
    const last = Number(this.dataset.end);
    const charts = [...document.querySelectorAll("line-chart")];
    this.end = (stacked ? last : Math.max(...charts.map((chart) => chart.dataset.end))) || 1;
    const show = ({ cursor, posToVal }) => {
      const at = cursor.left >= 0 ? posToVal(cursor.left, "x") : last;
      place.textContent = VALUE.format(at);
      curves.forEach(([, , x, y], i) => {
        const index = x.findLastIndex((one) => one <= at + 1e-9 * this.end); // rounding of posToVal
        values[i].textContent = index < 0 ? "–" : (stacked ? PERCENT : VALUE).format(y[index]);
      });
    };
    const axis = (format, pixels) => ({
      size: pixels, stroke: variable("--pale"),
      grid: { stroke: variable("--line"), width: 1 }, ticks: { show: false },
      values: (_, ticks) => ticks.map((tick) => format(tick)),
    });
    const size = () => ({ width: this.clientWidth, height: this.clientHeight });
    this.plot = new uPlot({
      ...size(), padding: [6, 14, 0, 0], series, bands, legend: { show: false },
      axes: [axis(formatTick, 24), axis(stacked ? PERCENT.format : formatTick, 52)],
      cursor: { y: false, points: { show: false }, sync: { key: "page" } }, hooks: { setCursor: [show] },
      scales: {
        x: { time: false, range: ({ data: [x] }, low, high) =>
          (x.length === 1 || low === x[0] ? [0, this.end] : [low, high]) },
        y: stacked ? { range: [0, 1] } : {},
      },
    }, uPlot.join(tables), this);
    if (zoom) this.plot.setScale("x", zoom);
    show(this.plot);
    this.addEventListener("keydown", (event) => this.movePointer(event));
    this.addEventListener("blur", () => this.plot.setCursor({ left: -10, top: -10 }, true, true));
    this.observer = new ResizeObserver(() => this.plot.setSize(size()));
    this.observer.observe(this);
  }

  movePointer({ key }) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (!step) return;
    const { cursor, data: [x] } = this.plot;
    const index = Math.min(Math.max(0, (cursor.idx ?? x.length) + step), x.length - 1);
    this.plot.setCursor({ left: this.plot.valToPos(x[index], "x"), top: 0 }, true, true);
  }

  disconnectedCallback() {
    const { min, max } = this.plot.scales.x;
    zoom = min === 0 && max === this.end ? null : { min, max };
    this.observer.disconnect();
    this.plot.destroy();
  }
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of document.querySelectorAll("line-chart")) chart.plot.redraw();
});
