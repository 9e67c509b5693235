// The shipped policy's network, with weights quantized by tools/build_site.py.
//
//   const policy = await Policy.load();
//   policy.values(planes, width, height);   // values of up, down, left and right; planes: observation "territory"

import { LAYERS } from "./facts.js";

const NUM_PLANES = 16;
const OWN_BODY_PLANE = 6; // The head of the snake has the value 255 in this plane.
const MEAN_CELLS = 121; // Sums over the board are divided by this number for every board size.

export class Policy {
  static async load() {
    const response = await fetch(new URL("policy.bin", import.meta.url));
    if (!response.ok) throw new Error(`policy.bin: ${response.status} ${response.statusText}`);
    const unpacked = response.body.pipeThrough(new DecompressionStream("gzip"));
    return new Policy(await new Response(unpacked).arrayBuffer());
  }

  constructor(buffer) {
    const rows = LAYERS.reduce((sum, { shape }) => sum + shape[0], 0);
    const scales = new Float32Array(buffer, 0, rows);
    const biases = new Float32Array(buffer, 4 * rows, rows);
    let [row, at] = [0, 8 * rows];
    this.layers = LAYERS.map(({ shape: [height, width], bits }) => {
      const count = height * width;
      const packed = new Uint8Array(buffer, at, (count * bits) / 8);
      const quantized = bits === 8 ? new Int8Array(packed)
        : Int8Array.from({ length: count }, (_, i) => ((packed[i >> 1] >> (i & 1 ? 0 : 4)) & 15) - 8);
      const weights = Float32Array.from(quantized, (n, i) => n * scales[row + Math.floor(i / width)]);
      const bias = biases.subarray(row, row + height);
      [row, at] = [row + height, at + packed.length];
      return { weights, bias, height, width };
    });
  }

  values(planes, width, height) {
    const head = planes.subarray(OWN_BODY_PLANE * width * height).indexOf(255);
    const headCell = { x: head % width, y: Math.floor(head / width) };
    const input = { width, height, depth: NUM_PLANES, cells: Float32Array.from(planes, (n) => n / 255) };
    const near = convolve(this.layers[0], input, 1);
    const far = convolve(this.layers[2], convolve(this.layers[1], near, 2), 1);
    let features = Float32Array.from([
      ...means(input), ...around(input, headCell, 3), ...around(near, headCell, 2),
      ...means(far), ...peaks(far)]);
    this.layers.slice(3).forEach((layer, i) => { features = dense(layer, features, i < 2); });
    return [...features];
  }
}

/** Applies a 3x3 convolution with the given stride and zero padding, followed by ReLU. */
function convolve({ weights, bias, height: depth }, from, stride) {
  const width = Math.ceil(from.width / stride);
  const height = Math.ceil(from.height / stride);
  const cells = new Float32Array(depth * width * height);
  for (let out = 0; out < depth; out += 1) {
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        let sum = bias[out];
        for (let dy = -1; dy <= 1; dy += 1) {
          for (let dx = -1; dx <= 1; dx += 1) {
            const [ox, oy] = [stride * x + dx, stride * y + dy];
            if (ox < 0 || oy < 0 || ox >= from.width || oy >= from.height) continue;
            let weight = out * from.depth * 9 + (dy + 1) * 3 + dx + 1;
            let cell = oy * from.width + ox;
            for (let i = 0; i < from.depth; i += 1) {
              sum += weights[weight] * from.cells[cell];
              weight += 9;
              cell += from.width * from.height;
            }
          }
        }
        cells[(out * height + y) * width + x] = Math.max(0, sum);
      }
    }
  }
  return { width, height, depth, cells };
}

function dense({ weights, bias, height, width }, from, relu) {
  return Float32Array.from({ length: height }, (_, row) => {
    let sum = bias[row];
    for (let i = 0; i < width; i += 1) sum += weights[row * width + i] * from[i];
    return relu ? Math.max(0, sum) : sum;
  });
}

/** Returns the square crop of `radius` cells around a cell. Cells off the board are 0. */
function around({ width, height, depth, cells }, { x, y }, radius) {
  const crop = [];
  for (let row = y - radius; row <= y + radius; row += 1) {
    for (let column = x - radius; column <= x + radius; column += 1) {
      const outside = row < 0 || column < 0 || row >= height || column >= width;
      for (let i = 0; i < depth; i += 1) {
        crop.push(outside ? 0 : cells[(i * height + row) * width + column]);
      }
    }
  }
  return crop;
}

function planesOf({ width, height, depth, cells }) {
  const size = width * height;
  return Array.from({ length: depth }, (_, i) => cells.subarray(i * size, (i + 1) * size));
}
const means = (from) => planesOf(from).map((plane) => plane.reduce((a, b) => a + b, 0) / MEAN_CELLS);
const peaks = (from) => planesOf(from).map((plane) => Math.max(...plane));
