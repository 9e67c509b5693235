// Player of a game: board, timeline, controls, snakes and their decisions.
//
//   const player = new Player(game, turnAddress);  // JSON of server/battlesnake_server/replay_json.py
//   player.grow(update);                           // appends frames of a live game
//   player.steer = (move) => ...;                  // arrow keys steer a snake instead of changing the turn
//   player.onShow = (frame, atEnd) => ...;         // callback for every turn that the player shows
//   player.openAnalysis();                         // opens the analysis of a complete game

import { Analysis } from "./analysis.js";
import { $, BoardView, CAUSES, colorDot } from "./board.js";
import "./copy_button.js";
import { ARROWS, html, renderDecision } from "./decision.js";
import { Graph, MAX_POINTS } from "./graph.js";
import { readJson } from "./requests.js";

/** Reasons why a snake returned no valid move (see server/battlesnake_server/arena/players.py). */
const PROBLEMS = {
  timeout: "no response in time",
  connection: "no connection",
  address: "address not allowed",
  redirect: "redirected request",
  status: "response with an error status",
  answer: "no move in the response",
};
const STEERING = {
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right",
  w: "up", s: "down", a: "left", d: "right",
};
const MAX_PAUSE_MS = 500; // a recorded game stands still in a hidden tab; a live game catches up
const MAX_SMOOTH_SPEED = 16; // turns per second; higher speeds have no animation
const prefersReducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class Player {
  constructor(game, turnAddress) {
    this.game = game;
    this.turnAddress = turnAddress;
    this.names = Object.fromEntries(game.snakes.map((snake) => [snake.id, snake.name]));
    this.position = 0; // in frames; fractions lie between two frames
    this.playing = false;
    this.request = 0; // id of the requested animation frame
    this.pendingFrame = null; // index of the frame in the address until the frame has arrived
    this.shownFrame = null; // the frame that the panels show
    this.steer = null;
    this.onShow = () => {};
    this.view = new BoardView($("board"), game, { coordinates: true });
    this.lengths = new Graph($("lengths"));
    this.analysis = new Analysis(this, $("analysis"));
    this.cards = game.snakes.map((snake, i) => this.makeCard(snake, i));
    $("snakes").classList.toggle("many", game.snakes.length > 4);
    $("snakes").replaceChildren(...this.cards.map((card) => card.root));
    $("facts").textContent = this.facts();
    this.grow({ from: game.frames.length, frames: [] });
    this.listen();
    addEventListener("hashchange", () => {
      const branch = this.addressedBranch();
      this.goToAddress();
      this.analysis.showAddressed(branch);
    });
    this.goToAddress();
  }

  /** Draws the timeline and opens the analysis of a complete game. */
  openAnalysis() {
    this.drawLengths();
    return this.analysis.open();
  }

  goToAddress() {
    const snake = Number(this.address().get("snake")) - 1;
    if (this.game.snakes[snake]) this.view.select(snake);
    const frame = this.addressedFrame();
    this.go(frame);
    if (frame > this.last && this.game.more) this.pendingFrame = frame;
  }

  get last() {
    return this.game.frames.length - 1;
  }

  /** Adds frames to the game; the first new frame may replace the last frame. */
  grow(update) {
    const { game } = this;
    game.frames.splice(update.from, Infinity, ...update.frames);
    game.deaths = update.deaths ?? game.deaths;
    game.over = update.over ?? game.over;
    game.problem = update.problem ?? game.problem;
    game.more = update.more ?? game.more;
    this.deaths = [...new Set(game.deaths.map((death) => death.turn - game.frames[0].turn))];
    for (const id of ["previous-death", "next-death"]) $(id).disabled = !this.deaths.length;
    $("scrub").max = this.last;
    this.shownFrame = null;
    if (!game.more) this.drawLengths();
    if (this.pendingFrame !== null && (this.pendingFrame <= this.last || !game.more)) this.goToAddress();
    else if (!this.playing) this.show();
  }

  /** Whether the game is over and all its frames have arrived. */
  get isComplete() {
    return this.game.over && !this.game.more;
  }

  /** Redraws the current frame after new information has arrived. */
  refresh() {
    this.shownFrame = null;
    if (!this.playing) this.show();
  }

  get index() {
    return Math.floor(this.position);
  }

  facts() {
    const { game } = this;
    const map = game.map && game.map !== "standard" ? game.map : null;
    const seed = game.seed ? `seed ${game.seed}` : null;
    return [game.ruleset, map, `${game.width}×${game.height}`, seed].filter(Boolean).join(" · ");
  }

  /** Parses the fragment of the address: `#turn=53&snake=2&if=ud-lr`. */
  address() {
    return new URLSearchParams(location.hash.slice(1));
  }

  /** Returns the index of the frame in the address. */
  addressedFrame() {
    const turn = Number(this.address().get("turn"));
    return Number.isFinite(turn) ? turn - this.game.frames[0].turn : 0;
  }

  /** Returns the branch in the address: moves that differ from the recorded moves. */
  addressedBranch() {
    const groups = this.address().get("if")?.split("-") ?? [];
    return { groups, turn: Number(this.address().get("turn")) };
  }

  /** Returns the address fragment of the current view. */
  fragment(frame) {
    const { selected } = this.view;
    const { branch } = this.analysis;
    return `#turn=${branch?.turn ?? frame.turn}` +
      (selected === null ? "" : `&snake=${selected + 1}`) +
      (branch ? `&if=${branch.groups.join("-")}` : "");
  }

  go(frame) {
    this.pause();
    this.pendingFrame = null;
    this.analysis.branch = null;
    this.position = Math.min(Math.max(0, Math.round(frame)), this.last);
    this.show();
  }

  toggle() {
    if (this.playing) this.go(this.position);
    else this.play();
  }

  play() {
    this.pause();
    this.pendingFrame = null;
    this.analysis.branch = null;
    if (this.index === this.last && this.isComplete) this.position = 0;
    this.playing = true;
    document.body.classList.add("playing");
    $("play").setAttribute("aria-label", "pause");
    let previous = null;
    const tick = (now) => {
      this.request = requestAnimationFrame(tick);
      if (previous !== null) {
        const catchUp = this.steer ? 10 * (this.last - this.position) : 0; // shows the effect of a key immediately
        const elapsed = Math.min(now - previous, this.isComplete ? MAX_PAUSE_MS : Infinity);
        const turns = (elapsed / 1000) * Math.max(this.speed, catchUp);
        this.position = Math.min(this.last, this.position + turns);
      }
      previous = now;
      this.show();
      if (this.position >= this.last && this.isComplete) this.pause();
    };
    this.request = requestAnimationFrame(tick);
  }

  pause() {
    cancelAnimationFrame(this.request);
    this.playing = false;
    document.body.classList.remove("playing");
    $("play").setAttribute("aria-label", "play");
  }

  get speed() {
    return Number($("speed").value);
  }

  changeSpeed(by) {
    const choice = $("speed");
    const index = choice.selectedIndex + by;
    choice.selectedIndex = Math.min(Math.max(0, index), choice.length - 1);
  }

  nextDeath() {
    const death = this.deaths.find((frame) => frame > this.index);
    if (death !== undefined) this.go(death);
  }

  previousDeath() {
    const death = this.deaths.findLast((frame) => frame < this.index);
    if (death !== undefined) this.go(death);
  }

  select(index) {
    if (this.steer && this.game.view_radius !== null) return; // the player sees only its own view
    const same = index === this.view.selected;
    this.view.select(same || index >= this.cards.length ? null : index);
    this.shownFrame = null;
    this.show();
  }

  /** Returns a frame, or what the selected snake sees of the frame if the view is limited. */
  seen(index) {
    const { frames } = this.game;
    return this.view.limit(frames[index], frames[index - 1]);
  }

  show() {
    const { frames } = this.game;
    const { index } = this;
    const fraction = this.position - index;
    const { branch } = this.analysis;
    if (this.shownFrame !== index) this.analysis.show(branch?.frame ?? frames[index]);
    const shown = branch ? this.view.limit(branch.frame, branch.frame) : this.seen(index);
    const still = branch || fraction === 0 || prefersReducedMotion.matches || this.speed > MAX_SMOOTH_SPEED;
    if (still) this.view.draw(shown);
    else this.view.draw(this.seen(index + 1), shown, fraction);
    for (const graph of [this.lengths, this.analysis.graph]) graph.moveCursor(this.position);
    if (this.shownFrame === index) return;
    this.shownFrame = index;
    this.showFrame(shown);
  }

  /** Shows the panels, which change only between turns. */
  showFrame(frame) {
    const end = this.game.frames[this.last].turn;
    $("turn").replaceChildren(html("b", "", String(frame.turn)), ` / ${end}`);
    $("scrub").value = this.index;
    $("scrub").setAttribute("aria-valuetext", `turn ${frame.turn}`);
    this.cards.forEach((card, i) => this.showSnake(card, frame.snakes[i], i));
    this.showDecision(frame);
    const you = this.view.selected === null ? "" : encodeURIComponent(this.selectedId);
    const { branch } = this.analysis;
    const turn = branch?.turn ?? frame.turn;
    const query = [you && `you=${you}`, branch && `if=${branch.groups.join("-")}`].filter(Boolean);
    for (const form of ["text", "json", "png", "scenario"]) {
      const address = `/${turn}/${form}`;
      $(`as-${form}`).href = this.turnAddress.replace("/0/FORM", address) +
        (query.length ? `?${query.join("&")}` : "");
    }
    $("scenario-link").hidden = Boolean(frame.snakes[this.view.selected]?.death) ||
      frame.snakes.filter((snake) => !snake.death).length < 2;
    const editor = $("as-editor");
    if (editor) editor.href = [`${editor.dataset.address}&turn=${turn}`, ...query].join("&");
    const fragment = this.fragment(frame);
    $("copy").dataset.copy = fragment;
    $("embed").dataset.copy = `${$("embed").dataset.embed}#turn=${turn}`;
    clearTimeout(this.addressTimer); // browsers limit the rate of address changes
    this.addressTimer = setTimeout(() => {
      if (this.pendingFrame === null) history.replaceState(null, "", fragment);
    }, 200);
    this.onShow(frame, this.isComplete && this.index === this.last);
  }

  get selectedId() {
    return this.game.snakes[this.view.selected].id;
  }

  makeCard(snake, index) {
    const bar = html("i");
    bar.style.background = snake.color;
    const card = {
      root: html("li"), bar, numbers: html("span", "numbers"), fate: html("p", "fate"),
      shout: html("p", "shout"), meter: html("div", "meter", bar),
      winProbability: html("span", "win-probability"),
    };
    const button = html("button", "snake-card",
      html("span", "name", colorDot(snake.color), html("b", "", snake.name), card.winProbability, card.numbers),
      card.meter, card.fate, card.shout);
    button.type = "button";
    button.title = `Show view and decisions of ${snake.name}${index < 9 ? ` (${index + 1})` : ""}`;
    button.addEventListener("click", () => this.select(index));
    card.root.append(button);
    card.button = button;
    return card;
  }

  showSnake(card, snake, index) {
    const { death, next } = snake;
    const latency = snake.latency && snake.latency !== "0" ? `${formatMs(snake.latency)} ms` : "";
    const move = next ? ARROWS[next.move] ?? "?" : "";
    card.root.classList.toggle("eliminated", Boolean(death));
    card.button.setAttribute("aria-pressed", String(index === this.view.selected));
    card.numbers.replaceChildren(
      html("span", "latency", death ? "" : latency),
      html("span", "move", death ? "" : move),
      html("span", "length", `${snake.body.length}`, html("small", "", snake.health === null ? " seen" : " long")),
      html("span", "health", death ? "" : String(snake.health ?? "?")));
    card.bar.style.width = `${death ? 0 : snake.health ?? 0}%`;
    card.meter.classList.toggle("low", (snake.health ?? 100) <= 25);
    card.fate.textContent = death ? this.fate(death, index) : "";
    card.shout.textContent = death ? "" : snake.shout;
  }

  fate(death, index) {
    const { frames, snakes } = this.game;
    const other = death.by && death.by !== snakes[index].id;
    const by = other ? `, by ${this.names[death.by] ?? death.by}` : "";
    const problem = frames[death.turn - frames[0].turn - 1]?.snakes[index].next?.problem;
    const missing = problem ? ` after a missing move (${PROBLEMS[problem] ?? problem})` : "";
    return `${CAUSES[death.cause] ?? death.cause}${by}${missing} · turn ${death.turn}`;
  }

  /** Shows the selected snake's decision before its next move. */
  showDecision(frame) {
    const next = frame.snakes[this.view.selected]?.next;
    const panel = $("decision");
    panel.hidden = this.view.selected === null || this.analysis.branch !== null;
    if (panel.hidden) return;
    const name = this.game.snakes[this.view.selected].name;
    const title = html("h2", "", name, next ? ` moves ${next.move || "nowhere"}` : " makes no further move");
    const parts = next ? renderDecision(next, this.names) : [];
    if (next && !parts.length && !next.problem) parts.push(html("p", "pale", this.missingReasons()));
    if (next?.problem) {
      const instead = next.reasons.length ? "the fallback chose it" : "the snake repeats its last move";
      const reason = PROBLEMS[next.problem] ?? next.problem;
      parts.unshift(html("p", "pale", `The snake returned no valid move (${reason}): ${instead}.`));
    }
    if (next?.inferred) {
      parts.unshift(html("p", "pale", "The file lacks this move; it was inferred from the positions."));
    }
    panel.replaceChildren(title, ...parts);
  }

  /** Explains why the selected snake's move has no reasons. */
  missingReasons() {
    const { timeout, frames } = this.game;
    const latencyMs = Number(frames[this.index + 1]?.snakes[this.view.selected].latency);
    if (timeout && latencyMs > timeout) {
      return `Its response came too late, after ${formatMs(latencyMs)} ms of ${timeout}: it repeats ` +
        "its last move.";
    }
    return "This game has no recorded reasons.";
  }

  /** Draws the timeline: the length of each snake on each turn, and the eliminations. */
  drawLengths() {
    const { frames, snakes } = this.game;
    let longest = 4;
    for (const { snakes: all } of frames) {
      for (const { body } of all) longest = Math.max(longest, body.length);
    }
    const step = Math.ceil(frames.length / MAX_POINTS);
    const own = this.steer && this.game.view_radius !== null ? this.view.selected : null;
    const curves = snakes.map(({ color }, i) => {
      const points = [];
      if (own !== null && i !== own) return { points, color }; // the player sees only its own view
      frames.forEach((frame, x) => {
        const { body, death } = frame.snakes[i];
        if (x % step && x < frames.length - 1) return;
        if (!death || death.turn === frame.turn) points.push([x, (0.9 * body.length) / longest]);
      });
      return { points, color };
    });
    const deaths = this.game.deaths.map((death) => ({
      class: "death", x: death.turn - frames[0].turn,
      stroke: snakes.find((snake) => snake.id === death.id).color,
    }));
    this.lengths.draw(Math.max(this.last, 1), curves, deaths);
  }

  /** Saves the game up to the shown turn as an animated GIF. */
  async saveGif() {
    const { saveGif } = await import("./gif.js");
    const { frames } = this.game;
    $("gif").disabled = true;
    const shown = frames.slice(0, this.index + 1).map((_, index) => this.seen(index));
    await saveGif(shown, this.game, `battlesnake-${frames[this.index].turn}.gif`)
      .catch((error) => showMessage(`The GIF could not be created: ${error.message}`))
      .finally(() => { $("gif").disabled = false; });
  }

  listen() {
    const clicks = {
      play: () => this.toggle(), start: () => this.go(0), end: () => this.go(this.last),
      back: () => this.go(Math.ceil(this.position) - 1), forward: () => this.go(this.index + 1),
      "next-death": () => this.nextDeath(), "previous-death": () => this.previousDeath(),
      "help-button": () => $("help").showModal(), gif: () => this.saveGif(),
    };
    for (const [id, action] of Object.entries(clicks)) $(id)?.addEventListener("click", action);
    $("speed").addEventListener("change", () => $("speed").blur());
    addEventListener("click", (event) => { // after a click, keys control the player again
      if (event.detail > 0) event.target.closest("button")?.blur();
    });
    $("scrub").addEventListener("input", () => this.go(Number($("scrub").value)));
    addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key; // Caps Lock may be on
    if (event.target.closest("select")) return;
    if (event.key === " " && event.target.closest("button")) return;
    if (event.target.closest("input, textarea") && event.target.id !== "scrub") return;
    if (this.steer && STEERING[key] && !event.shiftKey) {
      event.preventDefault();
      this.steer(STEERING[key]);
      return;
    }
    const step = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.go(Math.ceil(this.position) - step),
      ArrowRight: () => this.go(this.index + step),
      Home: () => this.go(0), End: () => this.go(this.last),
      n: () => this.nextDeath(), p: () => this.previousDeath(),
      m: () => this.analysis.nextMistake(),
      "+": () => this.changeSpeed(1), "=": () => this.changeSpeed(1),
      "-": () => this.changeSpeed(-1),
      "?": () => $("help").showModal(),
      Escape: () => (this.analysis.branch ? this.analysis.leave() : this.select(null)),
    };
    const digit = Number.parseInt(event.key, 10);
    const action = digit >= 1 ? () => this.select(digit - 1) : actions[key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

/** Formats a latency in ms with two significant digits or without decimals. */
function formatMs(text) {
  const value = Number(text);
  return value < 10 ? value.toFixed(1) : value.toFixed(0);
}

/** Shows a message above the board. */
export function showMessage(text) {
  $("message").hidden = false;
  $("message").textContent = text;
}

/** Shows the game at the address of `root` after its first chunk; returns the player. */
export async function openPlayer(root) {
  const game = await readJson(fetch(root.dataset.game));
  root.hidden = false;
  $("message").hidden = true;
  return new Player(game, root.dataset.turn);
}

/** Fetches the remaining chunks of a game; shows errors below the board. */
export async function fetchMore(player, address) {
  while (player.game.more) {
    try {
      player.grow(await readJson(fetch(`${address}?since=${player.game.frames.length}`)));
    } catch (error) {
      showMessage(`The rest of this game cannot be shown: ${error.message}`);
      player.grow({ from: player.game.frames.length, frames: [], more: false });
    }
  }
}
