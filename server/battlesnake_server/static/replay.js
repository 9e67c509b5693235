// The page of one recorded game.

import { $, fetchOn, opened } from "./player.js";

async function begin() {
  const root = $("player");
  try {
    const player = await opened(root);
    await fetchOn(player, root.dataset.game);
    player.look();
  } catch (error) {
    root.hidden = true;
    $("message").hidden = false;
    $("message").textContent = `This game cannot be shown: ${error.message}`;
  }
}

begin();
