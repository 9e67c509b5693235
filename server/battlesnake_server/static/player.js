// Plays a game: the board, the timeline, the controls and what each snake thought.
//
//   const player = new Player(game, turnAddress);  // a game as server/battlesnake_server/replay_json.py writes it
//   player.grow(update);                           // more frames of a game that is still on
//   player.steer = (move) => ...;                  // arrow keys steer instead of stepping
//   player.shown = (frame, atEnd) => ...;          // called for every turn that is shown
//   player.look();                                 // the game is whole: it may be looked into

import { Analysis } from "./analysis.js";
import { BoardView, element } from "./board.js";
import "./copy.js";
import { ARROWS, html, thoughts } from "./thoughts.js";

const CAUSES = {
  "wall-collision": "hit the wall",
  "snake-self-collision": "bit itself",
  "snake-collision": "ran into a body",
  "head-collision": "lost head to head",
  "out-of-health": "starved",
  hazard: "died of hazards",
};
/** Why a move was not the snake's own (see server/battlesnake_server/arena/players.py). */
const LOST = {
  timeout: "no answer in time",
  connection: "no connection",
  address: "its address is not allowed",
  redirect: "it sent its request elsewhere",
  status: "an answer that says it failed",
  answer: "no move in its answer",
};
const STEERING = {
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right",
  w: "up", s: "down", a: "left", d: "right",
};
const SMOOTH_UP_TO = 16; // turns a second; faster, snakes jump from cell to cell
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** The element with this id. */
export const $ = (id) => document.getElementById(id);

export class Player {
  constructor(game, turnAddress) {
    this.game = game;
    this.turnAddress = turnAddress;
    this.names = Object.fromEntries(game.snakes.map((snake) => [snake.id, snake.name]));
    this.place = 0; // in frames; a fraction is between two of them
    this.playing = false;
    this.wanted = null; // the frame that the address asks for, while its piece is still to come
    this.described = null; // the frame that the panels show
    this.steer = null;
    this.shown = () => {};
    this.view = new BoardView($("board"), game, { coordinates: true });
    this.analysis = new Analysis(this, $("analysis"));
    this.cards = game.snakes.map((snake, i) => this.makeCard(snake, i));
    $("snakes").classList.toggle("many", game.snakes.length > 4);
    $("snakes").replaceChildren(...this.cards.map((card) => card.root));
    $("facts").textContent = this.facts();
    this.grow({ from: game.frames.length, frames: [] });
    this.listen();
    addEventListener("hashchange", () => this.goToAsked());
    this.goToAsked();
  }

  /** Show what may be known of a game that is over. */
  look() {
    this.drawChart();
    return this.analysis.open();
  }

  goToAsked() {
    const snake = Number(this.address().get("snake")) - 1;
    if (this.game.snakes[snake]) this.view.select(snake);
    const asked = this.asked();
    this.go(asked);
    if (asked > this.last && this.game.more) this.wanted = asked;
  }

  get last() {
    return this.game.frames.length - 1;
  }

  /** Take in more frames; the first of them may say more of one that is known. */
  grow(update) {
    const { game } = this;
    game.frames.splice(update.from, Infinity, ...update.frames);
    game.deaths = update.deaths ?? game.deaths;
    game.over = update.over ?? game.over;
    this.deaths = [...new Set(game.deaths.map((death) => death.turn - game.frames[0].turn))];
    for (const id of ["previous-death", "next-death"]) $(id).disabled = !this.deaths.length;
    $("scrub").max = this.last;
    this.described = null;
    if (!update.more) this.drawChart();
    if (this.wanted !== null && this.wanted <= this.last) this.goToAsked();
    else if (!this.playing) this.show();
  }

  /** Show again what is shown, of which more is known. */
  refresh() {
    this.described = null;
    if (!this.playing) this.show();
  }

  get index() {
    return Math.floor(this.place);
  }

  facts() {
    const { game } = this;
    const map = game.map && game.map !== "standard" ? game.map : null;
    const seed = game.seed ? `seed ${game.seed}` : null;
    return [game.ruleset, map, `${game.width}×${game.height}`, seed].filter(Boolean).join(" · ");
  }

  /** What the address asks for: `#turn=53&snake=2&if=ud-lr`. */
  address() {
    return new URLSearchParams(location.hash.slice(1));
  }

  /** The frame that the address asks for. */
  asked() {
    const turn = Number(this.address().get("turn"));
    return Number.isFinite(turn) ? turn - this.game.frames[0].turn : 0;
  }

  /** The turns off the game that the address asks for. */
  askedBranch() {
    const groups = this.address().get("if")?.split("-") ?? [];
    return { groups, turn: Number(this.address().get("turn")) };
  }

  /** The address of what is shown. */
  written(frame) {
    const { selected } = this.view;
    const { branch } = this.analysis;
    return `#turn=${branch?.turn ?? frame.turn}` +
      (selected === null ? "" : `&snake=${selected + 1}`) +
      (branch ? `&if=${branch.groups.join("-")}` : "");
  }

  // --- moving through the game ------------------------------------------------------------------

  go(place) {
    this.pause();
    this.wanted = null;
    this.analysis.branch = null;
    this.place = Math.min(Math.max(0, Math.round(place)), this.last);
    this.show();
  }

  toggle() {
    if (this.playing) this.go(this.place);
    else this.play();
  }

  play() {
    this.wanted = null;
    this.analysis.branch = null;
    if (this.index === this.last && this.game.over !== false) this.place = 0;
    this.playing = true;
    document.body.classList.add("playing");
    $("play").setAttribute("aria-label", "pause");
    let before = null;
    const tick = (now) => {
      if (!this.playing) return;
      if (before !== null) {
        const hurry = this.steer ? 10 * (this.last - this.place) : 0; // a key shows at once
        const turns = ((now - before) / 1000) * Math.max(this.speed, hurry);
        this.place = Math.min(this.last, this.place + turns);
      }
      before = now;
      this.show();
      if (this.place >= this.last && this.game.over !== false) this.pause();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    this.playing = false;
    document.body.classList.remove("playing");
    $("play").setAttribute("aria-label", "play");
  }

  get speed() {
    return Number($("speed").value);
  }

  changeSpeed(by) {
    const choice = $("speed");
    const wanted = choice.selectedIndex + by;
    choice.selectedIndex = Math.min(Math.max(0, wanted), choice.length - 1);
  }

  nextDeath() {
    const found = this.deaths.find((place) => place > this.index);
    if (found !== undefined) this.go(found);
  }

  previousDeath() {
    const found = this.deaths.findLast((place) => place < this.index);
    if (found !== undefined) this.go(found);
  }

  select(index) {
    const same = index === this.view.selected;
    this.view.select(same || index >= this.cards.length ? null : index);
    this.described = null;
    this.show();
  }

  // --- showing ----------------------------------------------------------------------------------

  show() {
    const { frames } = this.game;
    const { index } = this;
    const share = this.place - index;
    const { branch } = this.analysis;
    if (this.described !== index) this.analysis.tell(branch?.frame ?? frames[index]);
    if (branch) this.view.draw(branch.frame);
    else if (share === 0 || calm.matches || this.speed > SMOOTH_UP_TO) this.view.draw(frames[index]);
    else this.view.draw(frames[index + 1], frames[index], share);
    $("cursor").setAttribute("x1", this.place);
    $("cursor").setAttribute("x2", this.place);
    this.analysis.moveCursor(this.place);
    if (this.described === index) return;
    this.described = index;
    this.tell(branch?.frame ?? frames[index]);
  }

  /** Everything that stands still between two turns. */
  tell(frame) {
    const end = this.game.frames[this.last].turn;
    $("turn").replaceChildren(html("b", "", String(frame.turn)), ` / ${end}`);
    $("scrub").value = this.index;
    $("scrub").setAttribute("aria-valuetext", `turn ${frame.turn}`);
    this.cards.forEach((card, i) => this.tellSnake(card, frame.snakes[i], i));
    this.tellThoughts(frame);
    const you = this.view.selected === null ? "" : encodeURIComponent(this.selectedId);
    const { branch } = this.analysis;
    const query = [you && `you=${you}`, branch && `if=${branch.groups.join("-")}`].filter(Boolean);
    for (const form of ["text", "json", "png", "scenario"]) {
      const address = `/${branch?.turn ?? frame.turn}/${form}`;
      $(`as-${form}`).href = this.turnAddress.replace("/0/FORM", address) +
        (query.length ? `?${query.join("&")}` : "");
    }
    $("scenario-link").hidden = !you || Boolean(frame.snakes[this.view.selected].death) ||
      frame.snakes.filter((snake) => !snake.death).length < 2;
    const lab = $("as-lab");
    if (lab) lab.href = `${lab.dataset.address}&turn=${frame.turn}` + (you && `&you=${you}`);
    const written = this.written(frame);
    $("copy").dataset.copy = written;
    clearTimeout(this.addressing); // browsers forbid many changes of the address a second
    this.addressing = setTimeout(() => {
      if (this.wanted === null) history.replaceState(null, "", written);
    }, 200);
    this.shown(frame, this.index === this.last);
  }

  get selectedId() {
    return this.game.snakes[this.view.selected].id;
  }

  makeCard(snake, index) {
    const dot = element("svg", { class: "dot", viewBox: "0 0 10 10" },
      element("circle", { cx: 5, cy: 5, r: 5, fill: snake.color }));
    const bar = html("i");
    bar.style.background = snake.color;
    const card = {
      root: html("li"), bar, numbers: html("span", "numbers"), fate: html("p", "fate"),
      shout: html("p", "shout"), meter: html("div", "meter", bar),
      chance: html("span", "chance"),
    };
    const button = html("button", "snake-card",
      html("span", "name", dot, html("b", "", snake.name), card.chance, card.numbers),
      card.meter, card.fate, card.shout);
    button.type = "button";
    button.title = `Look into ${snake.name} (${index + 1})`;
    button.addEventListener("click", () => this.select(index));
    card.root.append(button);
    card.button = button;
    return card;
  }

  tellSnake(card, snake, index) {
    const { death, next } = snake;
    const latency = snake.latency && snake.latency !== "0" ? `${milliseconds(snake.latency)} ms` : "";
    const move = next ? ARROWS[next.move] ?? "?" : "";
    card.root.classList.toggle("out", Boolean(death));
    card.button.setAttribute("aria-pressed", String(index === this.view.selected));
    card.numbers.replaceChildren(
      html("span", "latency", death ? "" : latency),
      html("span", "move", death ? "" : move),
      html("span", "length", `${snake.body.length}`, html("small", "", " long")),
      html("span", "health", death ? "" : String(snake.health)));
    card.bar.style.width = `${death ? 0 : snake.health}%`;
    card.meter.classList.toggle("low", snake.health <= 25);
    card.fate.textContent = death ? this.fate(death, index) : "";
    card.shout.textContent = death ? "" : snake.shout;
  }

  fate(death, index) {
    const { frames, snakes } = this.game;
    const other = death.by && death.by !== snakes[index].id;
    const by = other ? `, by ${this.names[death.by] ?? death.by}` : "";
    const problem = frames[death.turn - frames[0].turn - 1]?.snakes[index].next?.problem;
    const lost = problem ? ` after a lost move (${LOST[problem] ?? problem})` : "";
    return `${CAUSES[death.cause] ?? death.cause}${by}${lost} · turn ${death.turn}`;
  }

  /** What the selected snake thought before its next move. */
  tellThoughts(frame) {
    const next = frame.snakes[this.view.selected]?.next;
    const panel = $("thoughts");
    panel.hidden = this.view.selected === null || this.analysis.branch !== null;
    if (panel.hidden) return;
    const name = this.game.snakes[this.view.selected].name;
    const title = html("h2", "", name, next ? ` goes ${next.move || "nowhere"}` : " is done");
    const parts = next ? thoughts(next, this.names) : [];
    if (next && !parts.length && !next.problem) parts.push(html("p", "pale", this.silence()));
    if (next?.problem) {
      const instead = next.reasons.length ? "the fallback chose" : "it repeats its last one";
      const why = LOST[next.problem] ?? next.problem;
      parts.unshift(html("p", "pale", `This move was lost, ${why}: ${instead}.`));
    }
    if (next?.inferred) {
      parts.unshift(html("p", "pale", "The file does not have this move; this one fits."));
    }
    panel.replaceChildren(title, ...parts);
  }

  /** Why there are no reasons for the move of the selected snake. */
  silence() {
    const { timeout, frames } = this.game;
    const took = Number(frames[this.index + 1]?.snakes[this.view.selected].latency);
    if (timeout && took > timeout) {
      return `Its answer came too late, after ${milliseconds(took)} ms of ${timeout}: it repeats ` +
        "its last move.";
    }
    return "This game keeps no reasons.";
  }

  /** The timeline: how long each snake was on each turn, and where they died. */
  drawChart() {
    const { frames, snakes } = this.game;
    let longest = 4;
    for (const { snakes: all } of frames) {
      for (const { body } of all) longest = Math.max(longest, body.length);
    }
    const step = Math.ceil(frames.length / 600);
    const span = Math.max(this.last, 1);
    const chart = $("chart");
    const down = (length) => 40 - (36 * length) / longest;
    chart.setAttribute("viewBox", `0 0 ${span} 40`);
    const lines = snakes.map((snake, i) => {
      const points = [];
      frames.forEach((frame, x) => {
        const { body, death } = frame.snakes[i];
        if (x % step && x < frames.length - 1) return;
        if (!death || death.turn === frame.turn) points.push(`${x},${down(body.length)}`);
      });
      return element("polyline", { points: points.join(" "), stroke: snake.color });
    });
    const deaths = this.game.deaths.map((death) => {
      const x = death.turn - frames[0].turn;
      const index = snakes.findIndex((snake) => snake.id === death.id);
      return element("line", {
        class: "death", x1: x, x2: x, y1: 0, y2: 40, stroke: snakes[index].color,
      });
    });
    chart.replaceChildren(...deaths, ...lines,
      element("line", { id: "cursor", x1: 0, x2: 0, y1: 0, y2: 40 }));
  }

  // --- listening --------------------------------------------------------------------------------

  listen() {
    const clicks = {
      play: () => this.toggle(), start: () => this.go(0), end: () => this.go(this.last),
      back: () => this.go(Math.ceil(this.place) - 1), forward: () => this.go(this.index + 1),
      "next-death": () => this.nextDeath(), "previous-death": () => this.previousDeath(),
      "help-button": () => $("help").showModal(),
    };
    for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
    $("speed").addEventListener("change", () => $("speed").blur());
    addEventListener("click", (event) => { // who clicks with a pointer keeps the keys for playing
      if (event.detail > 0) event.target.closest("button")?.blur();
    });
    $("scrub").addEventListener("input", () => this.go(Number($("scrub").value)));
    addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (event.target.closest("select")) return;
    if (event.key === " " && event.target.closest("button")) return;
    if (event.target.closest("input, textarea") && event.target.id !== "scrub") return;
    if (this.steer && STEERING[event.key] && !event.shiftKey) {
      event.preventDefault();
      this.steer(STEERING[event.key]);
      return;
    }
    const step = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.go(Math.ceil(this.place) - step),
      ArrowRight: () => this.go(this.index + step),
      Home: () => this.go(0), End: () => this.go(this.last),
      n: () => this.nextDeath(), p: () => this.previousDeath(),
      m: () => this.analysis.nextMark(),
      "+": () => this.changeSpeed(1), "=": () => this.changeSpeed(1),
      "-": () => this.changeSpeed(-1),
      "?": () => $("help").showModal(),
      Escape: () => (this.analysis.branch ? this.analysis.leave() : this.select(null)),
    };
    const digit = Number.parseInt(event.key, 10);
    const action = digit >= 1 ? () => this.select(digit - 1) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

/** A latency as few digits as it deserves. */
function milliseconds(text) {
  const value = Number(text);
  return value < 10 ? value.toFixed(1) : value.toFixed(0);
}

/** Show the game at an address in `root`, its first piece at once; gives the player. */
export async function opened(root) {
  const answer = await fetch(root.dataset.game);
  const game = await answer.json();
  if (!answer.ok) throw new Error(game.error);
  root.hidden = false;
  $("message").hidden = true;
  return new Player(game, root.dataset.turn);
}

/** Fetch the other pieces of a game; what cannot be read is reported below the board. */
export async function fetchOn(player, address) {
  while (player.game.more) {
    const answer = await fetch(`${address}?since=${player.game.frames.length}`);
    const piece = await answer.json();
    if (!answer.ok) {
      $("message").hidden = false;
      $("message").textContent = `This game cannot be shown further: ${piece.error}`;
      player.game.more = false;
      return;
    }
    player.game.more = piece.more;
    player.grow(piece);
  }
}
