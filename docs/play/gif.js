// A game as an animated GIF: the board's pictures, as colours by number, compressed.
//
//   const blob = await film(frames, game);   // frames and game as board.js takes them

import { BoardView } from "./board.js";

const CELL = 28; // pixels
const EACH = 12; // hundredths of a second
const LAST = 300;
const COLOURS = 256;
const LONGEST_CODE = 12; // bits

export async function film(frames, game) {
  const style = await (await fetch(new URL("look.css", import.meta.url))).text();
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "board");
  const view = new BoardView(svg, game);
  const [width, height] = [CELL * game.width, CELL * game.height];
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = getComputedStyle(document.body).backgroundColor; // behind the round corners
  context.fillRect(0, 0, width, height);
  const pictures = [];
  for (const frame of frames) {
    view.draw(frame);
    const text = new XMLSerializer().serializeToString(svg)
      .replace(">", `><style>${style.replace(/[<&]/g, "")}</style>`);
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    await image.decode();
    URL.revokeObjectURL(image.src);
    context.drawImage(image, 0, 0, width, height);
    pictures.push(coarse(context.getImageData(0, 0, width, height).data));
  }
  return write(pictures, width, height);
}

/** 5 bits for each of red, green and blue. */
function coarse(pixels) {
  const found = new Uint16Array(pixels.length / 4);
  for (let i = 0; i < found.length; i += 1) {
    found[i] = ((pixels[4 * i] >> 3) << 10) | ((pixels[4 * i + 1] >> 3) << 5) | (pixels[4 * i + 2] >> 3);
  }
  return found;
}

/** The colours that are seen most, and a number for every colour: that of the nearest. */
function palette(pictures) {
  const counts = new Uint32Array(32768);
  for (const picture of pictures) for (const colour of picture) counts[colour] += 1;
  const seen = [...counts.keys()].filter((colour) => counts[colour]);
  const kept = [...seen].sort((a, b) => counts[b] - counts[a]).slice(0, COLOURS);
  const parts = (colour) => [colour >> 10, (colour >> 5) & 31, colour & 31];
  const apart = (a, b) => parts(a).reduce((sum, part, i) => sum + (part - parts(b)[i]) ** 2, 0);
  const number = new Uint8Array(32768);
  for (const colour of seen) {
    number[colour] = kept.reduce((best, one, i) =>
      (apart(one, colour) < apart(kept[best], colour) ? i : best), 0);
  }
  return { kept: kept.map((colour) => parts(colour).map((part) => (part << 3) | (part >> 2))), number };
}

function write(pictures, width, height) {
  const { kept, number } = palette(pictures);
  const bytes = [];
  const word = (value) => bytes.push(value & 255, value >> 8);
  const text = (letters) => bytes.push(...[...letters].map((letter) => letter.charCodeAt(0)));
  text("GIF89a");
  word(width);
  word(height);
  bytes.push(0xf7, 0, 0); // 256 colours for all pictures
  for (let i = 0; i < COLOURS; i += 1) bytes.push(...(kept[i] ?? [0, 0, 0]));
  bytes.push(0x21, 0xff, 11);
  text("NETSCAPE2.0");
  bytes.push(3, 1, 0, 0, 0); // again and again
  let before = null;
  pictures.forEach((picture, i) => {
    const numbers = Uint8Array.from(picture, (colour) => number[colour]);
    const [left, top, right, bottom] = changed(numbers, before, width, height);
    before = numbers;
    bytes.push(0x21, 0xf9, 4, 4);
    word(i === pictures.length - 1 ? LAST : EACH);
    bytes.push(0, 0, 0x2c);
    [left, top, right - left, bottom - top].forEach(word);
    bytes.push(0, 8);
    const part = [];
    for (let y = top; y < bottom; y += 1) part.push(...numbers.subarray(y * width + left, y * width + right));
    const packed = compress(part);
    for (let at = 0; at < packed.length; at += 255) {
      const block = packed.slice(at, at + 255);
      bytes.push(block.length, ...block);
    }
    bytes.push(0);
  });
  bytes.push(0x3b);
  return new Blob([Uint8Array.from(bytes)], { type: "image/gif" });
}

/** The rectangle outside of which two pictures are the same; at least one pixel. */
function changed(numbers, before, width, height) {
  if (!before) return [0, 0, width, height];
  let [left, top, right, bottom] = [width, height, 0, 0];
  numbers.forEach((value, i) => {
    if (value === before[i]) return;
    const [x, y] = [i % width, Math.floor(i / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  });
  return right ? [left, top, right, bottom] : [0, 0, 1, 1];
}

/** Variable-length codes of Lempel, Ziv and Welch, as GIF has them, for bytes. */
function compress(values) {
  const [CLEAR, END] = [256, 257];
  const out = [];
  let [buffer, filled, size, next] = [0, 0, 9, 258];
  let known = new Map();
  const emit = (code) => {
    buffer |= code << filled;
    for (filled += size; filled >= 8; filled -= 8) {
      out.push(buffer & 255);
      buffer >>>= 8;
    }
  };
  emit(CLEAR);
  let prefix = values[0];
  for (const value of values.slice(1)) {
    const pair = (prefix << 8) | value;
    if (known.has(pair)) {
      prefix = known.get(pair);
      continue;
    }
    emit(prefix);
    prefix = value;
    if (next === 1 << LONGEST_CODE) {
      emit(CLEAR);
      [size, next, known] = [9, 258, new Map()];
      continue;
    }
    if (next === 1 << size) size += 1;
    known.set(pair, next);
    next += 1;
  }
  emit(prefix);
  emit(END);
  if (filled) out.push(buffer & 255);
  return out;
}
