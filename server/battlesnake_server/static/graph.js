// Graph of a game in an <svg class="graph">: curves over turns, vertical marks and a cursor.

import { element } from "./board.js";

export const MAX_POINTS = 600; // maximum number of points of a curve

const HEIGHT = 100;
const vertical = (attributes) => element("line", { y1: 0, y2: HEIGHT, ...attributes });

export class Graph {
  constructor(svg) {
    this.svg = svg;
    this.cursor = vertical({ class: "cursor", x1: 0, x2: 0 });
  }

  /** Draws curves ({points, color}) of values in [0, 1], and marks ({x, class, stroke}), over `span` turns. */
  draw(span, curves, marks) {
    this.svg.setAttribute("viewBox", `0 0 ${span} ${HEIGHT}`);
    this.svg.replaceChildren(
      ...marks.map(({ x, ...attributes }) => vertical({ x1: x, x2: x, ...attributes })),
      ...curves.map(({ points, color }) => element("polyline", {
        points: points.map(([x, y]) => `${x},${HEIGHT * (1 - y)}`).join(" "), stroke: color,
      })),
      this.cursor);
  }

  /** Returns the turn at the position of a pointer event. */
  turnAt({ clientX }) {
    const { a: scale, e: left } = this.svg.getScreenCTM();
    return Math.round((clientX - left) / scale);
  }

  moveCursor(x) {
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
  }
}
