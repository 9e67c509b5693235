// What a strong search thinks of the game: chances, mistakes, best moves; and "what if".
//
//   const analysis = new Analysis(player, panel);   // panel: the element with data-address
//   analysis.tell(frame);                           // shows what is known of a turn
//
// replay_viewer/analysis_queue.py answers with what is known; replay_viewer/what_if.py plays what was not played.

import { element } from "./board.js";
import { ARROWS, MOVES, html } from "./thoughts.js";

const $ = (id) => document.getElementById(id);
const PAUSE = 1500; // milliseconds between two looks at an analysis that grows
const POINTS = 600; // of a line in the graph
const WORDS = Object.fromEntries(MOVES.map((move) => [move[0], move]));
const PROVED = 900; // cells of territory: a value beyond this is that of a decided game
const whole = (chance) => Math.round(100 * chance);
const percent = (chance, about = "≈") => `${chance % 1 ? `${about} ` : ""}${whole(chance)} %`;
const rest = (time) => new Promise((done) => setTimeout(done, time));

/** What the server answers; raises an error with its words where it refuses. */
async function ask(address, options) {
  const answer = await fetch(address, options);
  const sent = await answer.json();
  if (!answer.ok) throw new Error(sent.error);
  return sent;
}

export class Analysis {
  constructor(player, panel) {
    this.player = player;
    this.panel = panel;
    this.seen = new Map(); // turn -> {moves, snakes}
    this.marks = [];
    this.ends = null;
    this.asked = player.askedBranch(); // before the address is written anew
    this.branch = null; // {turn, groups, frame, snakes, over}: what was not played
    $("analyse").addEventListener("click", () => this.start());
    $("graph").addEventListener("click", (event) => this.pick(event));
    for (const move of MOVES) {
      $(`if-${move}`).addEventListener("click", () => this.attempt(() => this.playMove(move)));
    }
    $("if-on").addEventListener("click", () => this.attempt(() => this.goOn()));
    $("if-back").addEventListener("click", () => this.attempt(() => this.stepBack()));
    $("if-leave").addEventListener("click", () => this.leave());
  }

  // --- what is known -----------------------------------------------------------------------------

  /** Show the panel, with what was found before; follow what is being found. */
  async open() {
    this.panel.hidden = false;
    const { groups, turn } = this.asked;
    if (groups.length) await this.attempt(() => this.show(turn, groups));
    try {
      await this.follow(await ask(this.panel.dataset.address));
    } catch (error) {
      this.say(error.message);
    }
  }

  async start() {
    $("analyse").hidden = true;
    try {
      await this.follow(await ask(this.panel.dataset.address, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: "{}",
      }));
    } catch (error) {
      this.say(error.message);
    }
  }

  async follow(sent) {
    for (;;) {
      this.take(sent);
      if (sent.state !== "running" && this.seen.size >= sent.done) return;
      if (this.seen.size >= sent.done) await rest(PAUSE);
      sent = await ask(`${this.panel.dataset.address}?since=${this.seen.size}`);
    }
  }

  take(sent) {
    for (const { turn, ...seen } of sent.turns) this.seen.set(turn, seen);
    this.marks = sent.marks ?? this.marks;
    this.ends = sent.ends ?? this.ends;
    this.last = sent.last;
    const total = sent.last - sent.first + 1;
    const far = `${sent.done} of ${total} turns`;
    $("analyse").hidden = sent.state === "running" || sent.state === "done" ||
      sent.state === "unkept" || this.panel.dataset.may !== "true";
    this.say({
      none: sent.done ? `Analysed: ${far}.` : "", failed: sent.error, unkept: sent.error,
      running: total ? `Analysing: ${far} …` : "Waiting to be analysed …", done: "",
    }[sent.state]);
    this.drawGraph();
    this.listMarks();
    this.player.refresh();
  }

  say(words) {
    $("analysis-state").textContent = words;
  }

  // --- showing -----------------------------------------------------------------------------------

  /** The judgements of a turn or of what is shown off the game, by snake id. */
  judged(frame) {
    if (this.branch) return this.branch.snakes;
    return this.seen.get(frame.turn)?.snakes ?? null;
  }

  chances(frame) {
    const judged = this.judged(frame);
    if (judged) {
      return Object.fromEntries(Object.entries(judged).map(([id, { chance }]) => [id, chance]));
    }
    return !this.branch && frame.turn === this.last + 1 ? this.ends : null;
  }

  tell(frame) {
    const { game, view } = this.player;
    const chances = this.chances(frame);
    const judged = this.judged(frame) ?? {};
    $("chances").hidden = !chances;
    if (chances) this.tellChances(chances);
    const selected = game.snakes[view.selected]?.id;
    view.hints = selected && judged[selected]
      ? judged[selected].choices.map((choice, rank) => ({ index: view.selected, rank, ...choice }))
      : game.snakes.flatMap(({ id }, index) => (judged[id]?.choices ?? []).slice(0, 1)
        .map((choice) => ({ index, rank: 0, ...choice })));
    view.badges = this.branch ? [] : this.marks
      .filter((mark) => mark.turn === frame.turn - 1)
      .map((mark) => ({ index: game.snakes.findIndex(({ id }) => id === mark.id), sign: mark.sign }));
    this.tellLines(judged, selected);
    this.tellBranch(frame);
    const at = frame.turn - game.frames[0].turn;
    for (const button of $("marks").querySelectorAll("button")) {
      button.setAttribute("aria-current", String(Number(button.dataset.turn) === frame.turn && at >= 0));
    }
  }

  tellChances(chances) {
    const { snakes } = this.player.game;
    $("chances").replaceChildren(...snakes.filter(({ id }) => chances[id] !== undefined)
      .map(({ id, name, color }) => {
        const part = html("i");
        part.style.width = `${100 * chances[id]}%`;
        part.style.background = color;
        part.title = `${name} ${percent(chances[id])}`;
        return part;
      }));
    $("chances").setAttribute("aria-label", snakes.filter(({ id }) => chances[id] !== undefined)
      .map(({ id, name }) => `${name} ${percent(chances[id], "about")}`).join(", "));
    this.player.cards.forEach((card, i) => {
      const chance = chances[snakes[i].id];
      card.chance.textContent = chance === undefined ? "" : percent(chance);
    });
  }

  /** The ranked lines of the selected snake, else the best move of each. */
  tellLines(judged, selected) {
    const { game, names } = this.player;
    const of = selected && judged[selected]
      ? judged[selected].choices.map((choice) => [selected, choice])
      : game.snakes.filter(({ id }) => judged[id]?.choices.length)
        .map(({ id }) => [id, judged[id].choices[0]]);
    $("lines").replaceChildren(...of.map(([id, choice]) => html("li", "",
      html("b", "", selected ? ARROWS[choice.move] : `${names[id]} ${ARROWS[choice.move]}`),
      html("span", "", percent(choice.chance)),
      html("span", "pale", this.written(choice.line, id),
        this.unless(choice)))));
  }

  /** What may still change an end that the search has seen. */
  unless({ value, chance }) {
    if (Math.abs(value) <= PROVED || !(chance % 1)) return "";
    return value > 0 ? " unless food appears" : " unless food appears or a rival errs";
  }

  /** A line as arrows: the snake's own, then what its rivals are expected to do. */
  written(line, own) {
    const { names } = this.player;
    const arrows = (moves) => [...moves].map((letter) => ARROWS[WORDS[letter]] ?? "").join("");
    const rivals = Object.keys(line).filter((id) => id !== own && line[id]);
    const first = arrows(line[own] ?? "");
    if (rivals.length !== 1) return first;
    return `${first}  (${names[rivals[0]]} ${arrows(line[rivals[0]])})`;
  }

  listMarks() {
    const { names } = this.player;
    $("marks").replaceChildren(...this.marks.map((mark) => {
      const button = html("button", "mark",
        html("span", "", `turn ${mark.turn}`), html("b", "", names[mark.id] ?? mark.id),
        html("span", "sign", `${ARROWS[mark.move] ?? "·"}${mark.sign}`),
        html("span", "pale", `about ${whole(mark.before)} → ${whole(mark.after)} %, ` +
          `better ${ARROWS[mark.better]}`));
      button.type = "button";
      button.dataset.turn = mark.turn;
      button.addEventListener("click", () => this.goTo(mark));
      return html("li", "", button);
    }));
    $("marks-title").hidden = !this.marks.length;
  }

  goTo(mark) {
    const { player } = this;
    const index = player.game.snakes.findIndex(({ id }) => id === mark.id);
    if (player.view.selected !== index) player.select(index);
    player.go(mark.turn - player.game.frames[0].turn);
  }

  nextMark() {
    const { player } = this;
    const now = player.game.frames[player.index].turn;
    const next = this.marks.find((mark) => mark.turn > now);
    if (next) this.goTo(next);
  }

  // --- the graph ---------------------------------------------------------------------------------

  drawGraph() {
    const { game, last } = this.player;
    const graph = $("graph");
    graph.toggleAttribute("hidden", !this.seen.size);
    if (!this.seen.size) return;
    const first = game.frames[0].turn;
    const span = Math.max(this.last + 1 - first, last, 1);
    const step = Math.ceil(span / POINTS);
    graph.setAttribute("viewBox", `0 0 ${span} 100`);
    const lines = game.snakes.flatMap(({ id, color }) => {
      const parts = [[]];
      for (let turn = first; turn <= first + span; turn += step) {
        const known = this.seen.get(turn)?.snakes[id]?.chance ??
          (turn === this.last + 1 ? this.ends?.[id] : undefined);
        if (known === undefined) parts.push([]);
        else parts.at(-1).push(`${turn - first},${100 - 100 * known}`);
      }
      return parts.filter((part) => part.length > 1).map((part) =>
        element("polyline", { points: part.join(" "), stroke: color }));
    });
    const signs = this.marks.filter((mark) => mark.sign === "??").map((mark) => element("line", {
      class: "blunder", x1: mark.turn - first, x2: mark.turn - first, y1: 0, y2: 100,
    }));
    graph.replaceChildren(
      element("line", { class: "half", x1: 0, x2: span, y1: 50, y2: 50 }), ...signs, ...lines,
      element("line", { id: "graph-cursor", x1: 0, x2: 0, y1: 0, y2: 100 }));
    this.graphSpan = span;
  }

  moveCursor(place) {
    const cursor = $("graph-cursor");
    if (!cursor) return;
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
  }

  pick(event) {
    const box = $("graph").getBoundingClientRect();
    this.player.go(((event.clientX - box.left) / box.width) * this.graphSpan);
  }

  // --- what if -----------------------------------------------------------------------------------

  async attempt(action) {
    $("if-error").textContent = "";
    try {
      await action();
    } catch (error) {
      $("if-error").textContent = error.message;
    }
  }

  get frame() {
    const { player } = this;
    return this.branch?.frame ?? player.game.frames[player.index];
  }

  /** The snake that plays another move: the selected one, else the first that lives. */
  get mover() {
    const { selected } = this.player.view;
    return selected ?? this.frame.snakes.findIndex((snake) => !snake.death);
  }

  /** Play `move`: others do what they did in the game, off it what the search chooses. */
  async playMove(move) {
    const { mover } = this;
    const letters = this.frame.snakes.map((snake, i) => {
      if (snake.death) return ".";
      if (i === mover) return move[0];
      return (!this.branch && snake.next?.move?.[0]) || "x";
    });
    await this.push(letters.join(""));
  }

  async goOn() {
    await this.push(this.frame.snakes.map((snake) => (snake.death ? "." : "x")).join(""));
  }

  async push(group) {
    const turn = this.branch?.turn ?? this.frame.turn;
    await this.show(turn, [...(this.branch?.groups ?? []), group]);
  }

  async stepBack() {
    const { turn, groups } = this.branch;
    if (groups.length > 1) await this.show(turn, groups.slice(0, -1));
    else this.leave();
  }

  async show(turn, groups) {
    this.player.pause();
    const address = this.player.turnAddress.replace("/0/FORM", `/${turn}/frame`);
    const sent = await ask(`${address}?if=${groups.join("-")}`);
    this.branch = { turn, ...sent, groups: sent.moves.split("-") };
    this.player.refresh();
  }

  leave() {
    if (!this.branch) return;
    this.branch = null;
    this.player.refresh();
  }

  tellBranch(frame) {
    const { branch } = this;
    document.body.classList.toggle("off-game", Boolean(branch));
    const turns = branch?.groups.length;
    $("if-state").textContent = branch
      ? `Off the game: ${turns} turn${turns > 1 ? "s" : ""} after turn ${branch.turn}.`
      : `Play another move of ${this.player.game.snakes[this.mover]?.name ?? "a snake"}:`;
    $("if-back").disabled = $("if-leave").disabled = !branch;
    const dead = !frame.snakes[this.mover] || frame.snakes[this.mover].death;
    const over = branch ? branch.over : !frame.snakes.some((snake) => snake.next);
    for (const move of MOVES) $(`if-${move}`).disabled = Boolean(dead) || over;
    $("if-on").disabled = over;
  }
}
