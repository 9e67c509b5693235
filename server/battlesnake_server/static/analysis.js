// Analysis of a game by a search: win probabilities, mistakes, best moves and other moves.
//
//   const analysis = new Analysis(player, panel);   // panel: the element with data-address
//   analysis.show(frame);                           // shows the analysis of a turn
//
// replay_viewer/analysis_queue.py serves the analysis of a game. replay_viewer/what_if.py serves the
// analysis of positions after other moves.

import { $ } from "./board.js";
import { ARROWS, MOVES, html } from "./decision.js";
import { Graph, MAX_POINTS } from "./graph.js";
import { post, readJson, sleep } from "./requests.js";

const POLL_MS = 1500; // interval in ms between requests for a running analysis
const MOVES_BY_LETTER = Object.fromEntries(MOVES.map((move) => [move[0], move]));
const PROVEN = 900; // value in cells of territory; larger absolute values are forced wins or losses
const toPercent = (probability) => Math.round(100 * probability);
const formatPercent = (probability, about = "≈") =>
  `${probability % 1 ? `${about} ` : ""}${toPercent(probability)}%`;

export class Analysis {
  constructor(player, panel) {
    this.player = player;
    this.panel = panel;
    this.graph = new Graph($("graph"));
    this.positions = new Map(); // turn -> {moves, snakes}
    this.mistakes = [];
    this.finalScores = null;
    this.addressed = player.addressedBranch(); // branch in the address of the opened page
    this.branch = null; // {turn, groups, frame, snakes, over}: moves that differ from the game
    $("analyze").addEventListener("click", () => this.start());
    $("graph").addEventListener("click", (event) => player.go(this.graph.turnAt(event)));
    for (const move of MOVES) {
      $(`if-${move}`).addEventListener("click", () => this.attempt(() => this.playMove(move)));
    }
    $("if-on").addEventListener("click", () => this.attempt(() => this.playOn()));
    $("if-back").addEventListener("click", () => this.attempt(() => this.stepBack()));
    $("if-leave").addEventListener("click", () => this.leave());
  }

  /** Shows the panel with the available results, and polls a running analysis. */
  async open() {
    this.panel.hidden = false;
    await this.showAddressed(this.addressed);
    await this.follow(fetch(this.panel.dataset.address));
  }

  /** Shows a branch of an address, if the address has one. */
  async showAddressed({ groups, turn }) {
    if (groups.length) await this.attempt(() => this.showBranch(turn, groups));
  }

  async start() {
    $("analyze").hidden = true;
    await this.follow(post(this.panel.dataset.address));
  }

  /** Shows the analysis of a response, and polls a running analysis; offers the button again after an error. */
  async follow(request) {
    try {
      await this.poll(await readJson(request));
    } catch (error) {
      this.showStatus(error.message);
      $("analyze").hidden = this.panel.dataset.may !== "true";
    }
  }

  async poll(sent) {
    for (;;) {
      this.update(sent);
      if (sent.state !== "running" && this.positions.size >= sent.done) return;
      if (this.positions.size >= sent.done) await sleep(POLL_MS);
      sent = await readJson(fetch(`${this.panel.dataset.address}?since=${this.positions.size}`));
    }
  }

  update(sent) {
    for (const { turn, ...position } of sent.turns) this.positions.set(turn, position);
    this.mistakes = sent.mistakes ?? this.mistakes;
    this.finalScores = sent.final_scores ?? this.finalScores;
    this.last = sent.last;
    const total = sent.last - sent.first + 1;
    const progress = `${sent.done} of ${total} turns`;
    $("analyze").hidden = sent.state === "running" || sent.state === "done" ||
      sent.state === "no-replay" || this.panel.dataset.may !== "true";
    this.showStatus({
      none: sent.done ? `Analyzed: ${progress}.` : "", failed: sent.error, "no-replay": sent.error,
      running: total ? `Analyzing: ${progress} …` : "Waiting for the analysis …",
      done: this.mistakes.length ? "" : "No mistakes found.",
    }[sent.state]);
    this.drawGraph();
    this.listMistakes();
    this.player.refresh();
  }

  showStatus(text) {
    $("analysis-state").textContent = text;
  }

  /** Returns the assessments of a turn or of the branch, by snake id. */
  assessments(frame) {
    if (this.branch) return this.branch.snakes;
    return this.positions.get(frame.turn)?.snakes ?? null;
  }

  winProbabilities(frame) {
    const assessments = this.assessments(frame);
    if (assessments) {
      return Object.fromEntries(Object.entries(assessments).map(([id, assessment]) =>
        [id, assessment.win_probability]));
    }
    return !this.branch && frame.turn === this.last + 1 ? this.finalScores : null;
  }

  show(frame) {
    const { game, view } = this.player;
    const probabilities = this.winProbabilities(frame);
    const assessments = this.assessments(frame) ?? {};
    $("win-probabilities").hidden = !probabilities;
    this.showWinProbabilities(probabilities ?? {});
    const selected = game.snakes[view.selected]?.id;
    view.hints = selected && assessments[selected]
      ? assessments[selected].candidates.map((candidate, rank) => ({ index: view.selected, rank, ...candidate }))
      : game.snakes.flatMap(({ id }, index) => (assessments[id]?.candidates ?? []).slice(0, 1)
        .map((candidate) => ({ index, rank: 0, ...candidate })));
    view.badges = this.branch ? [] : this.mistakes
      .filter((mistake) => mistake.turn === frame.turn - 1)
      .map((mistake) => ({ index: game.snakes.findIndex(({ id }) => id === mistake.id), annotation: mistake.annotation }));
    this.showLines(assessments, selected);
    this.showBranchState(frame);
    const at = frame.turn - game.frames[0].turn;
    for (const button of $("mistakes").querySelectorAll("button")) {
      button.setAttribute("aria-current", String(Number(button.dataset.turn) === frame.turn && at >= 0));
    }
  }

  showWinProbabilities(probabilities) {
    const { snakes } = this.player.game;
    $("win-probabilities").replaceChildren(...snakes.filter(({ id }) => probabilities[id] !== undefined)
      .map(({ id, name, color }) => {
        const part = html("i");
        part.style.width = `${100 * probabilities[id]}%`;
        part.style.background = color;
        part.title = `${name} ${formatPercent(probabilities[id])}`;
        return part;
      }));
    $("win-probabilities").setAttribute("aria-label", snakes.filter(({ id }) => probabilities[id] !== undefined)
      .map(({ id, name }) => `${name} ${formatPercent(probabilities[id], "about")}`).join(", "));
    this.player.cards.forEach((card, i) => {
      const probability = probabilities[snakes[i].id];
      card.winProbability.textContent =
        probability === undefined ? "" : formatPercent(probability);
    });
  }

  /** Shows the ranked lines of the selected snake, or the best move of each snake. */
  showLines(assessments, selected) {
    const { game, names } = this.player;
    const candidates = selected && assessments[selected]
      ? assessments[selected].candidates.map((candidate) => [selected, candidate])
      : game.snakes.filter(({ id }) => assessments[id]?.candidates.length)
        .map(({ id }) => [id, assessments[id].candidates[0]]);
    $("lines").replaceChildren(...candidates.map(([id, candidate]) => html("li", "",
      html("b", "", selected ? ARROWS[candidate.move] : `${names[id]} ${ARROWS[candidate.move]}`),
      html("span", "", formatPercent(candidate.win_probability)),
      html("span", "pale", this.formatLine(candidate.line, id),
        this.caveat(candidate)))));
  }

  /** Returns the events that may change the forced win or loss that the search found. */
  caveat({ value, win_probability: probability }) {
    if (Math.abs(value) <= PROVEN || !(probability % 1)) return "";
    return value > 0 ? " unless food appears" : " unless food appears or an opponent errs";
  }

  /** Formats a line as arrows: the snake's own moves, then the moves of a single opponent. */
  formatLine(line, own) {
    const { names } = this.player;
    const arrows = (moves) => [...moves].map((letter) => ARROWS[MOVES_BY_LETTER[letter]] ?? "").join("");
    const opponents = Object.keys(line).filter((id) => id !== own && line[id]);
    const first = arrows(line[own] ?? "");
    if (opponents.length !== 1) return first;
    return `${first}  (${names[opponents[0]]} ${arrows(line[opponents[0]])})`;
  }

  listMistakes() {
    const { names } = this.player;
    $("mistakes").replaceChildren(...this.mistakes.map((mistake) => {
      const button = html("button", "mistake",
        html("span", "", `turn ${mistake.turn}`), html("b", "", names[mistake.id] ?? mistake.id),
        html("span", "annotation", `${ARROWS[mistake.move] ?? "·"}${mistake.annotation}`),
        html("span", "pale", `about ${toPercent(mistake.best_win_probability)} → ` +
          `${toPercent(mistake.played_win_probability)}%, ` +
          `better ${ARROWS[mistake.better_move]}`));
      button.type = "button";
      button.dataset.turn = mistake.turn;
      button.addEventListener("click", () => this.goTo(mistake));
      return html("li", "", button);
    }));
    $("mistakes-title").hidden = !this.mistakes.length;
  }

  goTo(mistake) {
    const { player } = this;
    const index = player.game.snakes.findIndex(({ id }) => id === mistake.id);
    if (player.view.selected !== index) player.select(index);
    player.go(mistake.turn - player.game.frames[0].turn);
  }

  nextMistake() {
    const { player } = this;
    const now = player.game.frames[player.index].turn;
    const next = this.mistakes.find((mistake) => mistake.turn > now);
    if (next) this.goTo(next);
  }

  drawGraph() {
    const { game, last } = this.player;
    this.graph.svg.toggleAttribute("hidden", !this.positions.size);
    if (!this.positions.size) return;
    const first = game.frames[0].turn;
    const span = Math.max(this.last + 1 - first, last, 1);
    const step = Math.ceil(span / MAX_POINTS);
    const curves = game.snakes.flatMap(({ id, color }) => {
      const parts = [[]];
      for (let turn = first + (span % step); turn <= first + span; turn += step) {
        const probability = this.positions.get(turn)?.snakes[id]?.win_probability ??
          (turn === this.last + 1 ? this.finalScores?.[id] : undefined);
        if (probability === undefined) parts.push([]);
        else parts.at(-1).push([turn - first, probability]);
      }
      return parts.filter((points) => points.length > 1).map((points) => ({ points, color }));
    });
    this.graph.draw(span, curves, this.mistakes.filter(({ annotation }) => annotation === "??")
      .map(({ turn }) => ({ class: "blunder", x: turn - first })));
  }

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

  /** Returns the index of the snake that makes the next move: the selected or first living snake. */
  get mover() {
    const { selected } = this.player.view;
    return selected ?? this.frame.snakes.findIndex((snake) => !snake.death);
  }

  /** Plays `move`; opponents replay recorded moves or, in a branch, play the moves of the search. */
  async playMove(move) {
    const { mover } = this;
    const letters = this.frame.snakes.map((snake, i) => {
      if (snake.death) return ".";
      if (i === mover) return move[0];
      return (!this.branch && snake.next?.move?.[0]) || "x";
    });
    await this.push(letters.join(""));
  }

  async playOn() {
    await this.push(this.frame.snakes.map((snake) => (snake.death ? "." : "x")).join(""));
  }

  async push(group) {
    const turn = this.branch?.turn ?? this.frame.turn;
    await this.showBranch(turn, [...(this.branch?.groups ?? []), group]);
  }

  async stepBack() {
    const { turn, groups } = this.branch;
    if (groups.length > 1) await this.showBranch(turn, groups.slice(0, -1));
    else this.leave();
  }

  async showBranch(turn, groups) {
    this.player.pause();
    const { branch, player: { position } } = this;
    const address = this.player.turnAddress.replace("/0/FORM", `/${turn}/frame`);
    const sent = await readJson(fetch(`${address}?if=${groups.join("-")}`));
    if (this.branch !== branch || this.player.position !== position) return; // of an earlier position
    this.branch = { turn, ...sent, groups: sent.moves.split("-") };
    this.player.refresh();
  }

  leave() {
    if (!this.branch) return;
    this.branch = null;
    this.player.refresh();
  }

  showBranchState(frame) {
    const { branch } = this;
    document.body.classList.toggle("in-branch", Boolean(branch));
    const turns = branch?.groups.length;
    $("if-state").textContent = branch
      ? `Branch: ${turns} turn${turns > 1 ? "s" : ""} after turn ${branch.turn}.`
      : `Play another move of ${this.player.game.snakes[this.mover]?.name ?? "a snake"}:`;
    $("if-back").disabled = $("if-leave").disabled = !branch;
    const dead = !frame.snakes[this.mover] || frame.snakes[this.mover].death;
    const over = branch ? branch.over : !frame.snakes.some((snake) => snake.next);
    for (const move of MOVES) $(`if-${move}`).disabled = Boolean(dead) || over;
    $("if-on").disabled = over;
  }
}
