// The page of one recorded game; with `data-plays` it plays, and is analysed where one may ask for that.

import { $, fetchOn, opened } from "./player.js";

async function begin() {
  const root = $("player");
  try {
    const player = await opened(root);
    await fetchOn(player, root.dataset.game);
    const known = player.look();
    if (root.dataset.plays !== "true") return;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches && !location.hash) player.play();
    await known;
    if (!$("analyse").hidden) player.analysis.start();
  } catch (error) {
    root.hidden = true;
    $("message").hidden = false;
    $("message").textContent = `This game cannot be shown: ${error.message}`;
  }
}

begin();
