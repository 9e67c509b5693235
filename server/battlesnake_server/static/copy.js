// Buttons that copy the page's address, with the part behind # that they name, for sending it on.

for (const button of document.querySelectorAll("button[data-copy]")) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    const address = new URL(button.dataset.copy, window.location.href).href;
    try {
      await navigator.clipboard.writeText(address);
      button.textContent = "Copied";
    } catch { // only secure pages, and those of this machine, have a clipboard
      window.prompt("The address of this page", address);
    }
    setTimeout(() => { button.textContent = words; }, 2000);
  });
}
