// Draws a position into an <svg>. The class is independent of replays, servers and controls.
//
//   const view = new BoardView(svg, {width, height, snakes: [{color, head, tail}, ...]});
//   view.draw(frame);                       // a frame of server/battlesnake_server/replay_json.py
//   view.draw(frame, previous, 0.4);        // draws 40% of the movement from `previous`
//   view.select(2);                         // outlines a snake, shows the scores of the
//                                           // moves and the expected line
//   view.limit(frame, before)               // returns what the selected snake sees of a frame
//   view.cellAt(event)                      // returns the cell [x, y] at a pointer, or null
//
// The colors of the board are custom properties of style.css (--cell, --food, ...). The colors of
// snakes and the shapes of their heads and tails come from the server
// (battlesnake_gym/draw/customization.py).

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 0.18;
const LABEL_MARGIN = 0.45; // space for the coordinates, in cells
const MAX_LINE_TURNS = 14;
const OFFSETS = { up: [0, 1], down: [0, -1], left: [-1, 0], right: [1, 0] };

/** Returns the element with this id. */
export const $ = (id) => document.getElementById(id);

/** Returns the list item of a snake: a dot in the snake's color, and a text. */
export function snakeItem(color, text) {
  const [item, dot] = [document.createElement("li"), document.createElement("span")];
  dot.className = "dot";
  dot.style.background = color;
  item.append(dot, text);
  return item;
}

/** Causes of elimination, in the order of their numbers in the engine. */
export const CAUSES = {
  "wall-collision": "hit a wall",
  "snake-self-collision": "ran into itself",
  "snake-collision": "ran into a body",
  "head-collision": "lost a head-to-head",
  "out-of-health": "starved",
  hazard: "died in a hazard",
};

/** Returns the cause of the visitor's elimination, for a sentence that starts with "you". */
export const yourCause = (cause) => (CAUSES[cause] ?? cause).replace("itself", "yourself");

/** Creates an SVG element; omits attributes that are null. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** Returns a dot in a snake's color, for lists. */
export const colorDot = (color) =>
  element("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" },
    element("circle", { cx: 5, cy: 5, r: 5, fill: color }));

export class BoardView {
  constructor(svg, game, { coordinates = false } = {}) {
    this.svg = svg;
    this.coordinates = coordinates;
    this.hints = []; // moves to draw as arrows: {index: snake, move, rank}
    this.badges = []; // annotations beside heads: {index: snake, annotation}
    this.game = game;
    this.selected = null;
    this.defaultLineSnake = null; // the snake whose line is drawn if none is selected
    this.shown = null;
    this.limited = new WeakMap(); // the frames that the selected snake sees, by frame
    const { width, height } = game;
    const edge = coordinates ? LABEL_MARGIN : 0;
    svg.setAttribute("viewBox",
      `${-MARGIN - edge} ${-MARGIN} ${width + 2 * MARGIN + edge} ${height + 2 * MARGIN + edge}`);
    this.ground = element("g");
    this.items = element("g");
    this.snakes = element("g");
    this.marks = element("g");
    svg.replaceChildren(this.ground, this.items, this.snakes, this.marks);
    this.drawGround();
  }

  /** Draws `frame`, or the transition from `previous` if `fraction` is below 1. */
  draw(frame, previous = null, fraction = 1) {
    const ground = fraction < 1 && previous ? previous : frame;
    if (ground !== this.shown) {
      this.shown = ground;
      this.drawItems(ground);
    }
    const order = frame.snakes.map((_, i) => i);
    order.sort((a, b) => (a === this.selected) - (b === this.selected));
    this.snakes.replaceChildren(...order.flatMap(
      (i) => this.drawSnake(i, frame, previous?.snakes[i] ?? null, fraction)));
    const crosses = fraction < 0.6 ? [] : this.drawCrosses(frame, true);
    this.marks.replaceChildren(
      ...crosses, ...this.drawLine(frame, fraction), ...(fraction < 1 ? [] : this.drawHints(frame)),
      ...this.drawValues(frame, fraction), ...(fraction < 1 ? [] : this.drawBadges(frame)));
  }

  select(index) {
    this.selected = index;
    this.limited = new WeakMap();
  }

  /** Returns the part of `frame` that the selected snake sees, if the view is limited.
   *
   * Food that `before`, the frame of the previous turn, lacks is visible everywhere.
   */
  limit(frame, before) {
    const own = frame?.snakes[this.selected];
    const radius = this.game.view_radius ?? null;
    if (radius === null || !own || own.death) return frame;
    if (this.limited.has(frame)) return this.limited.get(frame);
    const [headX, headY] = own.body[0];
    const visible = ([x, y]) => Math.abs(x - headX) + Math.abs(y - headY) <= radius;
    const snakes = frame.snakes.map((snake) => (snake === own || snake.death ? snake : {
      ...snake, body: snake.body.filter(visible), health: null, next: null,
      hidesHead: !visible(snake.body[0]), hidesTail: !visible(snake.body.at(-1)),
    }));
    const food = frame.food.filter((cell) => visible(cell) ||
      !before?.food.some((old) => same(old, cell)));
    const limited = { ...frame, snakes, food, visible };
    this.limited.set(frame, limited);
    return limited;
  }

  /** Returns the cell at the position of a pointer event, or null. */
  cellAt(event) {
    const box = this.svg.getScreenCTM().inverse();
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(box);
    const x = Math.floor(place.x);
    const y = this.game.height - 1 - Math.floor(place.y);
    return this.contains([x, y]) ? [x, y] : null;
  }

  /** Returns whether a cell is on the board. */
  contains([x, y]) {
    return x >= 0 && y >= 0 && x < this.game.width && y < this.game.height;
  }

  /** Returns a cell, or the cell at the opposite edge for a cell beyond an edge of a wrapped board. */
  wrap([x, y]) {
    const { width, height, ruleset } = this.game;
    return ruleset?.startsWith("wrapped") ? [(x + width) % width, (y + height) % height] : [x, y];
  }

  /** Returns the center of a cell in SVG coordinates, where y grows downward. */
  center([x, y]) {
    return [x + 0.5, this.game.height - y - 0.5];
  }

  drawGround() {
    const { width, height } = this.game;
    const cells = [];
    for (let x = 0; x < width; x += 1) {
      for (let y = 0; y < height; y += 1) {
        cells.push(`M${x + 0.12} ${y + 0.04}h.76q.08 0 .08 .08v.76q0 .08 -.08 .08h-.76` +
          "q-.08 0 -.08 -.08v-.76q0 -.08 .08 -.08z");
      }
    }
    this.ground.replaceChildren(
      element("rect", {
        class: "ground", x: -MARGIN, y: -MARGIN, rx: 0.3,
        width: width + 2 * MARGIN, height: height + 2 * MARGIN,
      }),
      element("path", { class: "cells", d: cells.join("") }),
      ...(this.coordinates ? this.drawLabels() : []));
  }

  /** Returns the labels of columns and rows, in the coordinates of the API. */
  drawLabels() {
    const { width, height } = this.game;
    const label = (x, y, number) => element("text", { class: "label", x, y }, String(number));
    return [
      ...Array.from({ length: width }, (_, x) => label(x + 0.5, height + 0.45, x)),
      ...Array.from({ length: height }, (_, y) => label(-0.4, height - y - 0.4, y)),
    ];
  }

  /** Returns arrows from the heads for the best moves; better moves have wider arrows. */
  drawHints(frame) {
    return this.hints.flatMap(({ index, move, rank }) => {
      const snake = frame.snakes[index];
      if (snake.death || snake.hidesHead) return [];
      const [x, y] = this.center(snake.body[0]);
      const [right, up] = OFFSETS[move];
      const at = (ahead, aside) =>
        `${(x + right * ahead + up * aside).toFixed(2)} ${(y - up * ahead + right * aside).toFixed(2)}`;
      const half = [0.13, 0.09, 0.06][rank] ?? 0.05;
      return [element("path", {
        class: `hint rank-${rank}`, stroke: this.game.snakes[index].color,
        d: `M${at(0.3, half)}L${at(0.72, half)}L${at(0.72, half + 0.14)}L${at(1.05, 0)}` +
          `L${at(0.72, -half - 0.14)}L${at(0.72, -half)}L${at(0.3, -half)}z`,
      })];
    });
  }

  /** Returns annotations beside the heads of snakes whose last move was a mistake. */
  drawBadges(frame) {
    const badges = this.badges.filter(({ index }) => !frame.snakes[index].hidesHead);
    return badges.map(({ index, annotation }) => {
      const [x, y] = this.visibleCenter(frame.snakes[index].body[0]);
      return element("g", { class: annotation === "??" ? "badge blunder" : "badge" },
        element("circle", { cx: x + 0.34, cy: y - 0.34, r: 0.3 }),
        element("text", { x: x + 0.34, y: y - 0.23, "text-anchor": "middle" }, annotation));
    });
  }

  /** Returns the center of a cell, clamped to the visible board. */
  visibleCenter(cell) {
    const [x, y] = this.center(cell);
    const { width, height } = this.game;
    return [Math.min(Math.max(x, 0.1), width - 0.1), Math.min(Math.max(y, 0.1), height - 0.1)];
  }

  drawItems(frame) {
    const items = frame.visible ? this.drawFog(frame.visible) : [];
    for (const [x, y, layers] of frame.hazards) {
      const [left, top] = [x, this.game.height - y - 1];
      const strength = Math.min(0.2 + 0.16 * layers, 0.85);
      items.push(element("rect", {
        class: "hazard", x: left + 0.04, y: top + 0.04, width: 0.92, height: 0.92, rx: 0.1,
        "fill-opacity": strength,
      }));
      items.push(element("path", {
        class: "hatch", d: `M${left + 0.2} ${top + 0.8}l.6 -.6M${left + 0.2} ${top + 0.4}l.2 -.2` +
          `M${left + 0.6} ${top + 0.8}l.2 -.2`,
      }));
      if (layers > 1) {
        items.push(element("text", {
          class: "layers", x: left + 0.88, y: top + 0.86, "text-anchor": "end",
        }, String(layers)));
      }
    }
    for (const cell of frame.food) {
      const [x, y] = this.center(cell);
      items.push(element("circle", { class: "food", cx: x, cy: y, r: 0.27 }));
      items.push(element("circle", { class: "shine", cx: x - 0.09, cy: y - 0.09, r: 0.07 }));
    }
    this.items.replaceChildren(...items, ...this.drawCrosses(frame, false));
  }

  /** Returns a shade on each cell that the selected snake does not see. */
  drawFog(visible) {
    const { width, height } = this.game;
    const cells = Array.from({ length: width * height }, (_, i) => [i % width, Math.floor(i / width)]);
    const d = cells.filter((cell) => !visible(cell)).map(([x, y]) => `M${x} ${height - y - 1}h1v1h-1z`);
    return [element("path", { class: "fog", d: d.join("") })];
  }

  drawSnake(index, frame, previous, fraction) {
    const snake = frame.snakes[index];
    const dying = snake.death && snake.death.turn === frame.turn;
    if ((snake.death && !dying) || !snake.body.length) return [];
    const whole = !snake.hidesHead && !snake.hidesTail && !previous?.hidesHead && !previous?.hidesTail;
    const moving = fraction < 1 && previous && !previous.death && whole;
    const body = snake.body;
    const strokes = this.strokes(body, moving ? previous.body : null, fraction);
    const { color, head: headParts = [], tail: tailParts = [] } = this.game.snakes[index];
    const group = element("g", {
      class: dying ? "snake dying" : "snake", "data-snake": index, fill: color, color,
      opacity: dying ? 1 - 0.72 * fraction : null,
    });
    if (index === this.selected) group.append(this.outline(strokes));
    group.append(...this.drawBody(strokes));
    const head = strokes[0][0];
    const tail = body.at(-1);
    if (!snake.hidesTail) group.append(...this.drawTail(strokes.at(-1), tailParts));
    if (body.length > 2 && same(tail, body.at(-2)) && !same(tail, body[0])) {
      const [x, y] = this.center(tail);
      group.append(element("circle", { class: "stays", cx: x, cy: y, r: 0.11 }));
    }
    if (snake.hidesHead) return [group];
    group.append(element("circle", { cx: head[0], cy: head[1], r: 0.42 }));
    group.append(drawParts(headParts, head, this.direction(body)));
    return [group];
  }

  /** Returns a body that tapers from head to tail; a single path is the fastest to draw. */
  drawBody(strokes) {
    const joints = Math.max(strokes.reduce((sum, stroke) => sum + stroke.length, 0) - 1, 3);
    const half = (joint) => 0.36 - (0.18 * joint) / joints;
    let d = "";
    let joint = 0;
    for (const stroke of strokes) {
      stroke.forEach((point, i) => {
        d += disc(point, half(joint));
        if (i > 0) d += taper(stroke[i - 1], half(joint - 1), point, half(joint));
        joint += 1;
      });
    }
    return [element("path", { class: "body", d })];
  }

  /** Returns the strokes of a body from head to tail; a body that wraps has several strokes. */
  strokes(body, before, fraction) {
    const cells = body.filter((cell, i) => i === 0 || !same(cell, body[i - 1]));
    const strokes = [[this.center(cells[0])]];
    for (let i = 1; i < cells.length; i += 1) {
      const [ahead, here] = [this.center(cells[i - 1]), this.center(cells[i])];
      const [dx, dy] = [here[0] - ahead[0], here[1] - ahead[1]];
      if (Math.abs(dx) + Math.abs(dy) <= 1) {
        strokes.at(-1).push(here);
      } else {
        const edge = [0.2 * -Math.sign(dx) * (dy === 0), 0.2 * -Math.sign(dy) * (dx === 0)];
        strokes.at(-1).push([ahead[0] + edge[0], ahead[1] + edge[1]]);
        strokes.push([[here[0] - edge[0], here[1] - edge[1]], here]);
      }
    }
    if (before) this.bend(strokes, body, before, fraction);
    return strokes;
  }

  /** Moves the head and the tail toward their previous cells, for the animation of a turn. */
  bend(strokes, body, before, fraction) {
    const [first, last] = [strokes[0], strokes.at(-1)];
    const [oldHead, oldTail] = [this.center(before[0]), this.center(before.at(-1))];
    if (adjacent(first[0], oldHead)) first[0] = interpolate(oldHead, first[0], fraction);
    if (adjacent(last.at(-1), oldTail)) last.push(interpolate(oldTail, last.at(-1), fraction));
  }

  outline(strokes) {
    const d = strokes.map((stroke) => `M${stroke.map((p) => p.join(" ")).join("L")}`).join("");
    const group = element("g", { class: "outline" },
      element("path", { d, fill: "none", "stroke-width": 0.82 }));
    const [x, y] = strokes[0][0];
    group.append(element("circle", { cx: x, cy: y, r: 0.49, stroke: "none" }));
    return group;
  }

  /** Returns the head's direction in SVG coordinates, or up if the body covers one cell. */
  direction(body) {
    const neck = body.find((cell) => !same(cell, body[0]));
    if (!neck || !same(neck, body[1])) return [0, -1];
    const [dx, dy] = [body[0][0] - neck[0], body[0][1] - neck[1]];
    const across = Math.abs(dx) + Math.abs(dy) > 1 ? -1 : 1;
    return [across * Math.sign(dx), across * -Math.sign(dy)];
  }

  /** Returns the tail customization at the end of the last stroke, in the stroke's direction. */
  drawTail(stroke, parts) {
    const tip = stroke.at(-1);
    const before = stroke.findLast((point) => !same(point, tip));
    if (!parts.length || !before) return [];
    const [dx, dy] = [tip[0] - before[0], tip[1] - before[1]];
    const across = Math.abs(dx) > Math.abs(dy);
    return [drawParts(parts, tip, across ? [Math.sign(dx), 0] : [0, Math.sign(dy)])];
  }

  /** Returns crosses at the heads of snakes eliminated on this turn (`fresh`) or earlier. */
  drawCrosses(frame, fresh) {
    const arm = fresh ? 0.28 : 0.15;
    return frame.snakes.flatMap(({ body, death }) => {
      if (!death || fresh !== (death.turn === frame.turn)) return [];
      const [x, y] = this.visibleCenter(body[0]);
      return [element("path", {
        class: fresh ? "cross fresh" : "cross",
        d: `M${x - arm} ${y - arm}l${2 * arm} ${2 * arm}M${x - arm} ${y + arm}l${2 * arm} ${-2 * arm}`,
      })];
    });
  }

  /** Returns the selected snake's principal variation: the expected moves of all snakes. */
  drawLine(frame, fraction) {
    const line = frame.snakes[this.selected ?? this.defaultLineSnake]?.next?.line;
    if (!line || fraction < 1) return [];
    const [halos, lines] = [[], []];
    this.game.snakes.forEach(({ id, color }, i) => {
      const moves = (line[id] ?? []).slice(0, MAX_LINE_TURNS);
      if (!moves.length || frame.snakes[i].hidesHead) return;
      let cell = frame.snakes[i].body[0];
      const [headX, headY] = this.center(cell);
      const [right, up] = OFFSETS[moves[0]];
      let d = `M${headX + 0.5 * right} ${headY - 0.5 * up}`; // from the edge of the head's cell
      for (const move of moves) {
        const next = [cell[0] + OFFSETS[move][0], cell[1] + OFFSETS[move][1]];
        const wrapped = this.wrap(next);
        if (!this.contains(wrapped)) break; // the snake hits a wall
        d += `${same(wrapped, next) ? "L" : "M"}${this.center(wrapped).join(" ")}`;
        cell = wrapped;
      }
      const [x, y] = this.center(cell);
      halos.push(element("path", { class: "line halo", d }));
      lines.push(
        element("path", { class: "line", d, stroke: color }),
        element("circle", { class: "line-end", cx: x, cy: y, r: 0.16, fill: color }));
    });
    return [...halos, ...lines];
  }

  /** Returns the scores of the selected snake's moves in the cells beside its head. */
  drawValues(frame, fraction) {
    const next = frame.snakes[this.selected]?.next;
    if (!next || fraction < 1) return [];
    const head = frame.snakes[this.selected].body[0];
    const searched = Object.keys(next.line ?? {}).length > 0; // for other moves, a search returns only bounds
    const vetoed = new Set(next.reasons.flatMap((reason) => reason.vetoed));
    return Object.entries(OFFSETS).flatMap(([move, [dx, dy]]) => {
      const score = next.scores[move];
      if (score === undefined && !vetoed.has(move) && move !== next.move) return [];
      const cell = this.wrap([head[0] + dx, head[1] + dy]);
      if (vetoed.has(move) && !this.contains(cell)) return [];
      const [x, y] = this.center(cell);
      const kind = move === next.move ? "chosen" : vetoed.has(move) ? "vetoed" : "other";
      const bound = searched && kind === "other";
      const text = score == null ? (move === next.move ? "✓" : "✕") :
        (bound ? "≤" : "") + brief(score);
      const long = text.length > 5 ? " longer" : text.length > 4 ? " long" : "";
      const group = element("g", { class: `value ${kind}${long}` },
        element("rect", { x: x - 0.44, y: y - 0.3, width: 0.88, height: 0.6, rx: 0.16 }));
      group.append(element("text", { x, y: y + 0.1, "text-anchor": "middle" }, text));
      return [group];
    });
  }
}

/** Formats a number in at most five characters. */
export function brief(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  return size >= 10000 ? value.toExponential(0) : value.toFixed(digits).replace("-", "−");
}

/** Returns the shapes of a head or tail at a point; shapes that face left are mirrored. */
function drawParts(parts, [x, y], [ahead, down]) {
  const side = ahead < 0 ? -1 : 1;
  const turned = [ahead, down, -down * side, ahead * side, x, y].join(" ");
  return element("g", { transform: `matrix(${turned})` }, ...parts.map(drawPart));
}

function drawPart({ fill, points, center, radius, width }) {
  const name = `part ${fill}`;
  if (center) return element("circle", { class: name, cx: center[0], cy: center[1], r: radius });
  const places = points.map((point) => point.join(",")).join(" ");
  return width === undefined
    ? element("polygon", { class: name, points: places })
    : element("polyline", { class: `${name} stroke`, points: places, "stroke-width": width });
}

/** Returns a disc as a path; the winding direction of `taper` keeps overlaps filled. */
function disc([x, y], radius) {
  const [r, left] = [radius.toFixed(3), (x - radius).toFixed(3)];
  const across = (2 * radius).toFixed(3);
  return `M${left} ${y.toFixed(3)}a${r} ${r} 0 1 0 ${across} 0a${r} ${r} 0 1 0 -${across} 0z`;
}

/** Returns the body segment between two points as a path; the half widths are in cells. */
function taper([x, y], half, [endX, endY], endHalf) {
  const size = Math.hypot(endX - x, endY - y) || 1;
  const [across, down] = [(y - endY) / size, (endX - x) / size];
  const at = (cx, cy, by) => `${(cx + by * across).toFixed(3)} ${(cy + by * down).toFixed(3)}`;
  return `M${at(x, y, half)}L${at(endX, endY, endHalf)}L${at(endX, endY, -endHalf)}` +
    `L${at(x, y, -half)}z`;
}

export function same(a, b) {
  return a[0] === b[0] && a[1] === b[1];
}

function adjacent(a, b) {
  return Math.abs(a[0] - b[0]) + Math.abs(a[1] - b[1]) <= 1;
}

function interpolate(from, to, fraction) {
  return [from[0] + (to[0] - from[0]) * fraction, from[1] + (to[1] - from[1]) * fraction];
}
