// The page of one recorded game.

import { $, Player } from "./player.js";

async function begin() {
  const root = $("player");
  try {
    const answer = await fetch(root.dataset.game);
    const game = await answer.json();
    if (!answer.ok) throw new Error(game.error);
    root.hidden = false;
    $("message").hidden = true;
    new Player(game, root.dataset.turn);
  } catch (error) {
    root.hidden = true;
    $("message").hidden = false;
    $("message").textContent = `This game cannot be shown: ${error.message}`;
  }
}

begin();
