// The page of one recorded game. With the attribute `data-plays`, the page plays the game on load, and
// starts the analysis if the visitor may start analyses.

import { $ } from "./board.js";
import { fetchMore, openPlayer, showMessage } from "./player.js";

async function main() {
  const root = $("player");
  try {
    const player = await openPlayer(root);
    await fetchMore(player, root.dataset.game);
    const opened = player.openAnalysis();
    if (root.dataset.plays !== "true") return;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches && !location.hash) player.play();
    await opened;
    if (!$("analyze").hidden) player.analysis.start();
  } catch (error) {
    root.hidden = true;
    showMessage(`This game cannot be shown: ${error.message}`);
  }
}

main();
