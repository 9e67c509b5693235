// The position editor: draws positions, queries the moves of snakes and saves scenarios.
//
// server/battlesnake_server/web/position_editor.py documents the JSON of a position. Requests
// contain the position as the body of a /move request. Every change redraws the board and removes the
// last response.

import { $, BoardView, colorDot, element, same } from "./board.js";
import { ARROWS, MOVES, html, renderDecision } from "./decision.js";
import { saveFile } from "./gif.js";
import { check, post, readJson } from "./requests.js";

const OFFSETS = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
const HINTS = {
  food: "Click a cell to add or remove food.",
  hazard: "Click a cell to add a hazard layer; shift-click removes one.",
  erase: "Click or drag to clear cells; snakes are cut there.",
  snake: "Drag from the head to the tail to draw the snake; click the last segment to remove it.",
};

const key = (cell) => cell.join(",");

/** Replaces the children of an element; the field or button at the same index keeps the focus. */
function refill(root, children) {
  const fields = () => [...root.querySelectorAll("input, button")];
  const focused = fields().indexOf(document.activeElement);
  root.replaceChildren(...children);
  fields()[focused]?.focus();
}

class PositionEditor {
  constructor(position) {
    this.tool = "food";
    this.cursor = [0, 0];
    this.drawing = false;
    this.numChanges = 0;
    this.board = $("board");
    this.listen();
    this.open(position);
  }

  /** Opens a position in the server's JSON format. */
  open(position) {
    const { frame } = position;
    this.width = position.width;
    this.height = position.height;
    this.turn = frame.turn;
    this.ruleset = position.ruleset;
    this.map = position.map;
    this.damage = position.damage;
    this.viewRadius = position.view_radius;
    this.you = position.you;
    this.newcomers = position.newcomers;
    this.food = frame.food.map((cell) => [...cell]);
    this.hazards = new Map(frame.hazards.map(([x, y, layers]) => [key([x, y]), layers]));
    this.snakes = position.snakes
      .map((snake, i) => ({
        ...snake, body: frame.snakes[i].body.map((cell) => [...cell]),
        health: frame.snakes[i].health, dead: Boolean(frame.snakes[i].death),
      }))
      .filter((snake) => !snake.dead);
    if (position.scenario) this.showScenario(position.scenario);
    this.changed();
  }

  showScenario({ name, note, allowed }) {
    $("name").value = name;
    $("note").value = note;
    for (const box of $("allowed").querySelectorAll("input")) {
      box.checked = allowed.includes(box.value);
    }
  }

  /** Returns the position as the body of a /move request. */
  toRequest() {
    const cell = ([x, y]) => ({ x, y });
    const snakes = this.snakes.filter((snake) => snake.body.length).map((snake) => ({
      id: snake.id, name: snake.name, health: snake.health, body: snake.body.map(cell),
    }));
    const hazards = [...this.hazards].flatMap(([place, layers]) => {
      const [x, y] = place.split(",").map(Number);
      return Array.from({ length: layers }, () => ({ x, y }));
    });
    return {
      game: {
        id: "lab", map: this.map, timeout: 500,
        ruleset: { name: this.ruleset, settings: { hazardDamagePerTurn: this.damage, viewRadius: this.viewRadius } },
      },
      turn: this.turn,
      board: {
        width: this.width, height: this.height, food: this.food.map(cell), hazards, snakes,
      },
      you: snakes.find((snake) => snake.id === this.you) ?? null,
    };
  }

  get names() {
    return Object.fromEntries(this.snakes.map((snake) => [snake.id, snake.name]));
  }

  apply(cell, { first = true, back = false } = {}) {
    if (this.tool === "food" && first) this.toggleFood(cell);
    else if (this.tool === "hazard" && first) this.addHazard(cell, back ? -1 : 1);
    else if (this.tool === "erase") this.erase(cell);
    else if (typeof this.tool === "number") this.drawBody(this.snakes[this.tool], cell, first);
    else return;
    this.changed();
  }

  toggleFood(cell) {
    const index = this.food.findIndex((food) => same(food, cell));
    if (index >= 0) this.food.splice(index, 1);
    else this.food.push(cell);
  }

  addHazard(cell, by) {
    const layers = Math.min((this.hazards.get(key(cell)) ?? 0) + by, 9);
    if (layers > 0) this.hazards.set(key(cell), layers);
    else this.hazards.delete(key(cell));
  }

  erase(cell) {
    this.food = this.food.filter((food) => !same(food, cell));
    this.hazards.delete(key(cell));
    for (const snake of this.snakes) {
      const cut = snake.body.findIndex((part) => same(part, cell));
      if (cut >= 0) snake.body.length = cut;
    }
  }

  /** Places the head on a free cell, extends the tail to an adjacent cell, or shortens the tail. */
  drawBody(snake, cell, first) {
    const tail = snake.body.at(-1);
    const at = snake.body.findIndex((part) => same(part, cell));
    if (tail && same(tail, cell)) {
      if (first) snake.body.pop();
      return;
    }
    if (at >= 0) {
      if (!first) snake.body.length = at + 1; // dragging along the body shortens the tail
      return;
    }
    if (tail && this.adjacent(tail, cell)) snake.body.push(cell);
    else if (first) snake.body = [cell];
  }

  adjacent(a, b) {
    const distance = [Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])];
    if (this.ruleset.startsWith("wrapped")) {
      distance[0] = Math.min(distance[0], this.width - distance[0]);
      distance[1] = Math.min(distance[1], this.height - distance[1]);
    }
    return distance[0] + distance[1] === 1;
  }

  /** Resizes a body: adds segments on the tail's cell, or removes segments. */
  resize(snake, length) {
    while (snake.body.length > length) snake.body.pop();
    while (snake.body.length && snake.body.length < length) snake.body.push([...snake.body.at(-1)]);
    this.changed();
  }

  addSnake() {
    const letters = Array.from({ length: 16 }, (_, i) => String.fromCharCode(97 + i));
    const id = letters.find((letter) => !this.snakes.some((snake) => snake.id === letter));
    const colors = new Set(this.snakes.map((snake) => snake.color));
    const customization = this.newcomers.find(({ color }) => !colors.has(color));
    this.snakes.push({ ...customization, id, name: id.toUpperCase(), body: [], health: 100 });
    this.tool = this.snakes.length - 1;
    this.changed();
  }

  removeSnake(index) {
    this.snakes.splice(index, 1);
    if (typeof this.tool === "number") this.tool = "food";
    this.changed();
  }

  changeSize() {
    const size = (id) => Math.min(Math.max(Math.round(Number($(id).value)) || 11, 3), 25);
    [this.width, this.height] = [size("width"), size("height")];
    const inside = ([x, y]) => x < this.width && y < this.height;
    this.food = this.food.filter(inside);
    for (const place of [...this.hazards.keys()]) {
      if (!inside(place.split(",").map(Number))) this.hazards.delete(place);
    }
    for (const snake of this.snakes) {
      const cut = snake.body.findIndex((part) => !inside(part));
      if (cut >= 0) snake.body.length = cut;
    }
    this.cursor = this.cursor.map((at, i) => Math.min(at, (i ? this.height : this.width) - 1));
    this.changed();
  }

  changed() {
    this.numChanges += 1;
    for (const id of ["width", "height", "turn", "damage", "ruleset"]) $(id).value = this[id];
    if (!this.snakes.some((snake) => snake.id === this.you && snake.body.length)) {
      this.you = this.snakes.find((snake) => snake.body.length)?.id ?? null;
    }
    for (const id of ["width", "height", "turn", "damage", "ruleset"]) $(id).value = this[id];
    $("response").replaceChildren();
    $("error").textContent = "";
    this.showTools();
    this.showSnakes();
    this.draw();
  }

  /** Draws the position, with the queried snake's decision `next`. */
  draw(next = null) {
    const shown = this.snakes.filter((snake) => snake.body.length);
    const game = { width: this.width, height: this.height, ruleset: this.ruleset, snakes: shown };
    const view = new BoardView(this.board, game);
    const hazards = [...this.hazards].map(([place, layers]) => [...place.split(",").map(Number), layers]);
    view.select(shown.findIndex((snake) => snake.id === this.you));
    view.draw({
      turn: this.turn, food: this.food, hazards,
      snakes: shown.map((snake) => ({
        body: snake.body, health: snake.health, death: null,
        next: next && snake.id === this.you ? next : null,
      })),
    });
    this.view = view;
    const [x, y] = view.center(this.cursor);
    this.board.append(element("rect", {
      class: "cursor", x: x - 0.48, y: y - 0.48, width: 0.96, height: 0.96, rx: 0.12,
    }));
  }

  showTools() {
    const tools = [["food", "Food", "f"], ["hazard", "Hazard", "h"], ["erase", "Erase", "e"],
      ...this.snakes.map((snake, i) => [i, snake.name, i < 9 ? String(i + 1) : ""])];
    refill($("tools"), tools.map(([tool, name, shortcut]) => {
      const button = html("button", "tool", this.toolIcon(tool), html("span", "", name));
      button.type = "button";
      button.title = shortcut ? `${name} (${shortcut})` : name;
      button.setAttribute("aria-pressed", String(tool === this.tool));
      button.addEventListener("click", () => this.choose(tool));
      return button;
    }));
    $("hint").textContent = HINTS[this.tool] ?? HINTS.snake;
  }

  toolIcon(tool) {
    if (typeof tool === "number") return colorDot(this.snakes[tool].color);
    const icon = element("svg", { class: "dot", viewBox: "0 0 10 10", "aria-hidden": "true" });
    if (tool === "food") icon.append(element("circle", { class: "food", cx: 5, cy: 5, r: 4 }));
    else if (tool === "hazard") {
      icon.append(element("rect", { class: "hazard", width: 10, height: 10, rx: 2 }));
    } else icon.append(element("path", { class: "stroke", d: "M2 2l6 6M8 2l-6 6" }));
    return icon;
  }

  choose(tool) {
    this.tool = tool;
    this.showTools();
  }

  showSnakes() {
    const you = $("you");
    you.replaceChildren(...this.snakes.filter((snake) => snake.body.length).map((snake) => {
      const option = html("option", "", snake.name);
      option.value = snake.id;
      return option;
    }));
    if (this.you) you.value = this.you;
    refill($("snakes"), this.snakes.map((snake, i) => this.snakeRow(snake, i)));
    $("add-snake").disabled = this.snakes.length >= 16;
  }

  snakeRow(snake, index) {
    const number = (label, value, low, high, change) => {
      const input = html("input");
      Object.assign(input, { type: "number", min: low, max: high, value });
      input.setAttribute("aria-label", `${label} of ${snake.name}`);
      input.addEventListener("change", () => {
        change(Math.min(Math.max(Math.round(Number(input.value)) || low, low), high));
      });
      return html("label", "", `${label} `, input);
    };
    const remove = html("button", "quiet", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", `remove ${snake.name}`);
    remove.addEventListener("click", () => this.removeSnake(index));
    return html("li", "", colorDot(snake.color), html("b", "", snake.name),
      number("health", snake.health, 1, 100, (value) => { snake.health = value; this.changed(); }),
      number("length", snake.body.length, 0, 200, (value) => this.resize(snake, value)),
      remove);
  }

  post(path, sent) {
    return post(`${$("editor").dataset.address}/${path}`, sent);
  }

  /** Runs an action; shows the error message if the action fails. */
  async attempt(action) {
    $("error").textContent = "";
    try {
      await action();
    } catch (error) {
      $("error").textContent = error.message;
    }
  }

  async query() {
    const { numChanges } = this;
    $("query").disabled = true;
    await this.attempt(async () => {
      const response = await readJson(this.post("ask", {
        snake: $("snake").value.trim(), milliseconds: Number($("milliseconds").value),
        board: this.toRequest(),
      }));
      if (numChanges !== this.numChanges) return;
      const { next } = response;
      this.draw(next);
      const name = this.names[this.you];
      $("response").replaceChildren(
        html("p", "verdict", html("b", "", `${ARROWS[next.move]} ${name} moves ${next.move}`),
          html("span", "pale", ` in ${response.milliseconds.toFixed(0)} ms`)),
        ...(response.shout ? [html("p", "shout", response.shout)] : []),
        ...renderDecision(next, this.names));
    });
    $("query").disabled = false;
  }

  async scenarioText() {
    const allowed = [...$("allowed").querySelectorAll("input:checked")].map((box) => box.value);
    const response = await check(this.post("scenario", {
      name: $("name").value, note: $("note").value, allowed, board: this.toRequest(),
    }));
    return response.text();
  }

  async save() {
    const file = new Blob([await this.scenarioText()], { type: "text/plain" });
    saveFile(file, `${$("name").value.trim().replace(/[^\w-]+/g, "-") || "scenario"}.txt`);
  }

  listen() {
    for (const move of MOVES) {
      const box = html("input");
      Object.assign(box, { type: "checkbox", value: move });
      $("allowed").append(html("label", "check", box, ` ${move}`));
    }
    const { board } = this;
    board.addEventListener("pointerdown", (event) => {
      const cell = this.view.cellAt(event);
      if (!cell) return;
      board.setPointerCapture(event.pointerId);
      this.drawing = true;
      this.cursor = cell;
      this.apply(cell, { back: event.shiftKey });
    });
    board.addEventListener("pointermove", (event) => {
      const cell = this.drawing && this.view.cellAt(event);
      if (!cell || same(cell, this.cursor)) return;
      this.cursor = cell;
      this.apply(cell, { first: false });
    });
    for (const end of ["pointerup", "pointercancel"]) {
      board.addEventListener(end, () => { this.drawing = false; });
    }
    board.addEventListener("keydown", (event) => this.press(event));
    const clicks = {
      query: () => this.query(), "add-snake": () => this.addSnake(), clear: () => this.clear(),
      save: () => this.attempt(() => this.save()),
      show: () => this.attempt(async () => { $("text").value = await this.scenarioText(); }),
      read: () => this.attempt(async () => {
        this.open(await readJson(this.post("read", { text: $("text").value })));
      }),
    };
    for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
    for (const id of ["width", "height"]) $(id).addEventListener("change", () => this.changeSize());
    for (const id of ["turn", "damage"]) {
      $(id).addEventListener("change", () => {
        this[id] = Math.round(Number($(id).value)) || 0;
        this.changed();
      });
    }
    $("ruleset").addEventListener("change", () => {
      this.ruleset = $("ruleset").value;
      this.changed();
    });
    $("you").addEventListener("change", () => {
      this.you = $("you").value;
      this.changed();
    });
    $("builtin").addEventListener("change", () => this.attempt(async () => {
      const number = $("builtin").value;
      $("builtin").value = "";
      this.open(await readJson(fetch(`${$("editor").dataset.address}/shipped/${number}`)));
    }));
  }

  clear() {
    this.food = [];
    this.hazards.clear();
    for (const snake of this.snakes) snake.body = [];
    this.changed();
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const offset = OFFSETS[event.key];
    const tools = { f: "food", h: "hazard", e: "erase" };
    const number = Number.parseInt(event.key, 10);
    if (offset) {
      const [x, y] = [this.cursor[0] + offset[0], this.cursor[1] + offset[1]];
      if (x < 0 || y < 0 || x >= this.width || y >= this.height) return event.preventDefault();
      this.cursor = [x, y];
      this.draw();
      this.announce();
    } else if (event.key === "Enter" || event.key === " ") {
      this.apply(this.cursor, { back: event.shiftKey });
      this.announce();
    } else if (tools[event.key]) this.choose(tools[event.key]);
    else if (number >= 1 && number <= this.snakes.length) this.choose(number - 1);
    else return undefined;
    return event.preventDefault();
  }

  /** Announces the content of the cell at the cursor to screen readers. */
  announce() {
    const content = [];
    for (const snake of this.snakes) {
      const at = snake.body.findIndex((part) => same(part, this.cursor));
      if (at >= 0) content.push(`${at === 0 ? "head" : "body"} of ${snake.name}`);
    }
    if (this.food.some((food) => same(food, this.cursor))) content.push("food");
    const layers = this.hazards.get(key(this.cursor));
    if (layers) content.push(`hazard ${layers}`);
    const [x, y] = this.cursor;
    $("announcement").textContent = `column ${x}, row ${y}: ${content.join(", ") || "empty"}`;
  }
}

new PositionEditor(JSON.parse($("start").textContent));
