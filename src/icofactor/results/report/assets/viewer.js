// The cortex in WebGL2: one canvas, one pane per hemisphere and side. No library.

const SURFACE_VERTEX = `#version 300 es
in vec3 position; in vec3 normal; in float value; in float known; in float fold; in vec3 corners;
uniform vec3 right, up, toward; uniform vec2 scale; uniform float reach;
out float v, k, f, light; out vec3 near; flat out vec3 labels;
void main() {
  v = value; k = known; f = fold; labels = corners;
  int corner = gl_VertexID % 3;
  near = vec3(corner == 0, corner == 1, corner == 2);
  light = abs(dot(normal, toward));
  gl_Position = vec4(dot(position, right) * scale.x, dot(position, up) * scale.y, -dot(position, toward) / reach, 1.0);
}`;

// mode 0: a ramp from low to high; 1: the same in steps, a pixel having its nearest corner's; 2: labels, likewise
const SURFACE_FRAGMENT = `#version 300 es
precision highp float;
in float v, k, f, light; in vec3 near; flat in vec3 labels;
uniform sampler2D ramp; uniform int mode; uniform float low, high, cut;
out vec4 colour;
void main() {
  vec3 base = vec3(0.80 - 0.13 * f);
  bool used = k > 0.999, shown = used;
  float label = near.x >= near.y && near.x >= near.z ? labels.x : near.y >= near.z ? labels.y : labels.z;
  float level = mode == 0 ? v : label;
  vec3 paint;
  if (mode == 2) {
    shown = used && label > 0.5;
    paint = texelFetch(ramp, ivec2(int(label + 0.5) - 1, 0), 0).rgb;
  } else {
    shown = used && abs(level) >= cut;
    paint = texture(ramp, vec2((0.5 + 255.0 * clamp((level - low) / (high - low), 0.0, 1.0)) / 256.0, 0.5)).rgb;
  }
  if (!used) base = vec3(0.60);
  colour = vec4((shown ? paint : base) * (0.5 + 0.5 * light), 1.0);
}`;

// a line is a thin rectangle on the screen, drawn a little before the surface
const LINE_VERTEX = `#version 300 es
in vec3 a; in vec3 b;
uniform vec3 right, up, toward; uniform vec2 scale, pane; uniform float reach, width, lift;
vec3 place(vec3 p) { return vec3(dot(p, right) * scale.x, dot(p, up) * scale.y, -dot(p, toward) / reach); }
void main() {
  vec3 from = place(a), to = place(b);
  vec2 along = (to.xy - from.xy) * pane;
  vec2 across = length(along) > 0.0 ? normalize(vec2(-along.y, along.x)) : vec2(0.0);
  vec3 here = (gl_VertexID & 1) == 0 ? from : to;
  float side = gl_VertexID < 2 ? -1.0 : 1.0;
  gl_Position = vec4(here.xy + across * side * width / pane, here.z - lift, 1.0);
}`;
const LINE_FRAGMENT = `#version 300 es
precision highp float;
uniform vec4 ink; out vec4 colour;
void main() { colour = ink; }`;

class Viewer {
  /** Draw `data` (the page's cortex) into `stage`; `array` finds arrays by ticket. */
  constructor(stage, data, array) {
    this.stage = stage;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": "Maps on the cortex. Arrow keys choose the component; with Shift they rotate the views." });
    stage.append(this.canvas);
    const gl = (this.gl = this.canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true, alpha: false }));
    if (!gl) throw new Error("This browser has no WebGL2");
    Object.assign(this, { shape: 0, yaw: 0, pitch: 0, zoom: 1, lines: false, paint: null });
    this.surface = this.program(SURFACE_VERTEX, SURFACE_FRAGMENT, ["position", "normal", "value", "known", "fold", "corners"]);
    this.line = this.program(LINE_VERTEX, LINE_FRAGMENT, ["a", "b"]);
    this.halves = data.halves.map((half) => this.hemisphere(half, array));
    this.halves.forEach((half, i) => { half.first = i && this.halves[i - 1].first + this.halves[i - 1].n; });
    for (const half of this.halves) this.prepare(half);
    this.ramp = gl.createTexture();
    this.panes = this.makePanes();
    this.setShape(0);
    this.finish(this.surface);
    this.finish(this.line);
    new ResizeObserver(() => this.resize()).observe(stage);
    this.listen();
  }

  hemisphere(half, array) {
    const shapes = half.shapes.map((shape) => {
      const codes = array(shape.codes), out = new Float32Array(codes.length);
      const middle = shape.low.map((low, i) => low + shape.width[i] / 2);
      for (let i = 0; i < codes.length; i++) {
        const axis = i % 3;
        out[i] = shape.low[axis] + (shape.width[axis] * codes[i]) / 65535 - middle[axis];
      }
      return { positions: out, half: shape.width.map((w) => w / 2), normals: null };
    });
    const part = half.lines;
    return {
      ...half, shapes,
      triangles: Uint32Array.from(array(half.triangles)),
      fold: Float32Array.from(array(half.folding), (code) => code / 127.5 - 1),
      numbers: half.vertices ? array(half.vertices) : null,
      lines: { corners: array(part.corners), weights: array(part.weights), segments: array(part.segments) },
    };
  }

  /** Begin to compile; `finish` waits for it, so that surfaces are unpacked meanwhile. */
  program(vertex, fragment, attributes) {
    const gl = this.gl, program = gl.createProgram();
    const shaders = [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]].map(([kind, text]) => {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
      return shader;
    });
    attributes.forEach((name, i) => gl.bindAttribLocation(program, i, name));
    gl.linkProgram(program);
    return { program, shaders, at: {}, attribute: (name) => attributes.indexOf(name) };
  }

  finish({ program, shaders, at }) {
    const gl = this.gl;
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error([...shaders.map((shader) => gl.getShaderInfoLog(shader)), gl.getProgramInfoLog(program)].filter(Boolean).join(" "));
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const name = gl.getActiveUniform(program, i).name;
      at[name] = gl.getUniformLocation(program, name);
    }
  }

  prepare(half) {
    const gl = this.gl;
    half.buffers = {};
    half.array = gl.createVertexArray();
    gl.bindVertexArray(half.array);
    for (const [name, size] of [["position", 3], ["normal", 3], ["value", 1], ["known", 1], ["fold", 1], ["corners", 3]]) {
      half.buffers[name] = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, half.buffers[name]);
      const place = this.surface.attribute(name);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, size, gl.FLOAT, false, 0, 0);
    }
    this.load(half, "fold", atCorners(half.fold, half.triangles, 1));
    half.lineArray = gl.createVertexArray();
    gl.bindVertexArray(half.lineArray);
    half.buffers.lines = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, half.buffers.lines);
    ["a", "b"].forEach((name, i) => {
      const place = this.line.attribute(name);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, 3, gl.FLOAT, false, 24, 12 * i);
      gl.vertexAttribDivisor(place, 1);
    });
    gl.bindVertexArray(null);
  }

  load(half, name, data) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, half.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, data, this.gl.STATIC_DRAW);
  }

  setShape(index) {
    this.shape = index;
    for (const half of this.halves) {
      const shape = half.shapes[index];
      shape.normals ??= normalsOf(shape.positions, half.triangles);
      this.load(half, "position", atCorners(shape.positions, half.triangles, 3));
      this.load(half, "normal", atCorners(shape.normals, half.triangles, 3));
      this.load(half, "lines", linePositions(half.lines, shape.positions));
    }
    this.resize(true);
  }

  /** What to paint: {values, known} over all vertices, {mode, low, high, cut} and the ramp's bytes; with `marks`, the labels' numbers too. */
  setPaint(paint) {
    const gl = this.gl;
    this.paint = paint;
    for (const half of this.halves) {
      half.parts = paint.marks ? partsOf(paint.values.subarray(half.first, half.first + half.n)) : new Map();
      const values = atCorners(paint.values.subarray(half.first, half.first + half.n), half.triangles, 1);
      this.load(half, "value", values);
      this.load(half, "known", atCorners(paint.known.subarray(half.first, half.first + half.n), half.triangles, 1));
      if (paint.mode === 0 && half.cornered) continue; // only labels and steps look at them
      half.cornered = true;
      const corners = new Float32Array(3 * values.length); // all three values of a triangle, at each of its corners
      for (let i = 0; i < values.length; i++) for (let j = 0; j < 3; j++) corners[3 * i + j] = values[i - (i % 3) + j];
      this.load(half, "corners", corners);
    }
    gl.bindTexture(gl.TEXTURE_2D, this.ramp);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB8, paint.ramp.length / 3, 1, 0, gl.RGB, gl.UNSIGNED_BYTE, paint.ramp);
    for (const key of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, key, gl.LINEAR);
    for (const key of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, key, gl.CLAMP_TO_EDGE);
    this.draw();
  }

  /** Lateral views above, medial ones below; one hemisphere has its two views side by side. */
  makePanes() {
    const two = this.halves.length === 2;
    const panes = [];
    this.halves.forEach((half, i) => ["lateral", "medial"].forEach((view, j) => {
      const title = half.named ? `${half.side} ${view}` : view, label = el("div", { class: "pane" }, el("b", {}, title), el("i"), el("i"));
      this.stage.append(label);
      panes.push({ half, view, title, label, marks: new Map(), column: two ? i : j, row: two ? j : 0 });
    }));
    return panes;
  }

  resize(again = false) {
    const width = this.stage.clientWidth;
    if (!width || !this.panes) return;
    const height = this.arrange(width);
    const { tight, dense } = this;
    this.stage.style.height = `${height}px`;
    this.stage.classList.toggle("tight", tight);
    const size = [Math.round(width * dense), Math.round(height * dense)];
    if (this.canvas.width === size[0] && this.canvas.height === size[1] && !again) return; // drawn already
    [this.canvas.width, this.canvas.height] = size;
    for (const pane of this.panes)
      for (const [name, size] of [["left", pane.x], ["top", pane.y], ["width", pane.width], ["height", pane.height]]) pane.label.style[name] = `${size}px`;
    this.draw();
  }

  /** Place the panes in two columns and return their height. */
  arrange(width) {
    const rows = this.panes.length / 2;
    const paneWidth = width / 2;
    const [wide, tall] = this.reach();
    this.tight = paneWidth < 300; // no room for words beside the brain
    // controls, views and colour bar fit into the window together, where it is not too low for that
    const roomy = Math.min(paneWidth * 0.72, 330, Math.max(210, (innerHeight - 280) / rows));
    const paneHeight = this.tight ? (tall / wide) * (paneWidth - 6) + 34 : roomy;
    for (const pane of this.panes)
      Object.assign(pane, { x: pane.column * paneWidth, y: pane.row * paneHeight, width: paneWidth, height: paneHeight });
    this.dense = Math.min(2, window.devicePixelRatio || 1);
    return Math.round(paneHeight * rows);
  }

  /** Directions of a pane on the page. The right hemisphere mirrors the left one, so that like places stay in view. */
  camera(pane) {
    const left = pane.half.side === "left";
    const start = left === (pane.view === "lateral") ? Math.PI : 0;
    const angle = start + (left ? this.yaw : -this.yaw);
    const right = [-Math.sin(angle), Math.cos(angle), 0];
    const level = Math.cos(this.pitch);
    const toward = [level * Math.cos(angle), level * Math.sin(angle), Math.sin(this.pitch)];
    return { right, toward, up: cross(toward, right) };
  }

  /** Half the extent of the shape, across and above, the larger hemisphere's. */
  reach() {
    let wide = 0, tall = 0;
    for (const { shapes } of this.halves) {
      const [x, y, z] = shapes[this.shape].half;
      wide = Math.max(wide, x, y);
      tall = Math.max(tall, z, x);
    }
    return [wide, tall];
  }

  /** Pixels of the page per unit of the surface, alike in all panes. */
  magnification(pane) {
    const [wide, tall] = this.reach();
    return (this.tight ? 0.97 : 0.92) * this.zoom * Math.min((pane.width - (this.tight ? 6 : 88)) / (2 * wide), (pane.height - (this.tight ? 30 : 26)) / (2 * tall));
  }

  draw() {
    if (!this.paint || !this.panes?.[0].width) return;
    const { gl, dense } = this;
    const height = this.canvas.height;
    gl.clearColor(1, 1, 1, 1);
    gl.disable(gl.SCISSOR_TEST);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST);
    gl.enable(gl.SCISSOR_TEST);
    for (const pane of this.panes) {
      const box = [pane.x * dense, height - (pane.y + pane.height) * dense, pane.width * dense, pane.height * dense];
      gl.viewport(...box);
      gl.scissor(...box);
      this.drawPane(pane, dense);
    }
  }

  drawPane(pane, dense) {
    const gl = this.gl, { half } = pane, camera = this.camera(pane), size = this.magnification(pane);
    const reach = 1.1 * Math.hypot(...half.shapes[this.shape].half);
    const common = (at) => {
      gl.uniform3fv(at.right, camera.right);
      gl.uniform3fv(at.up, camera.up);
      gl.uniform3fv(at.toward, camera.toward);
      gl.uniform2f(at.scale, (2 * size) / pane.width, (2 * size) / pane.height);
      gl.uniform1f(at.reach, reach);
    };
    const { program, at } = this.surface, paint = this.paint;
    gl.useProgram(program);
    common(at);
    gl.uniform1i(at.mode, paint.mode);
    gl.uniform1f(at.low, paint.low);
    gl.uniform1f(at.high, paint.high);
    gl.uniform1f(at.cut, paint.cut);
    gl.bindTexture(gl.TEXTURE_2D, this.ramp);
    gl.bindVertexArray(half.array);
    gl.drawArrays(gl.TRIANGLES, 0, half.triangles.length);
    if (this.lines && half.lines.segments.length) {
      gl.useProgram(this.line.program);
      common(this.line.at);
      gl.uniform2f(this.line.at.pane, pane.width * dense, pane.height * dense);
      gl.bindVertexArray(half.lineArray);
      // dark under light, so that lines show on any colour
      for (const [width, lift, ink] of [[2.6 * dense, 0.012, [0.08, 0.1, 0.14, 1]], [1.2 * dense, 0.016, [1, 1, 1, 1]]]) {
        gl.uniform1f(this.line.at.width, width);
        gl.uniform1f(this.line.at.lift, lift);
        gl.uniform4fv(this.line.at.ink, ink);
        gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, half.lines.segments.length / 2);
      }
    }
    gl.bindVertexArray(null);
    const names = [["left", "right"], ["back", "front"], ["bottom", "top"]];
    const axis = camera.right.reduce((best, value, i) => (Math.abs(value) > Math.abs(camera.right[best]) ? i : best), 0);
    const ends = camera.right[axis] > 0 ? names[axis] : [...names[axis]].reverse();
    pane.label.querySelectorAll("i").forEach((node, i) => { node.textContent = ends[i]; });
    this.placeMarks(pane);
  }

  /** The number of each part in sight, at that of its vertices which is nearest to the middle of those in sight: [part, x, y]. */
  marksOf(pane) {
    const { half } = pane, { positions: p, normals: n } = half.shapes[this.shape], { right, up, toward } = this.camera(pane), size = this.magnification(pane);
    const along = (values, i, axis) => values[3 * i] * axis[0] + values[3 * i + 1] * axis[1] + values[3 * i + 2] * axis[2];
    return [...half.parts].flatMap(([part, vertices]) => {
      const seen = vertices.filter((i) => along(n, i, toward) > 0.4).map((i) => [along(p, i, right) * size, -along(p, i, up) * size]);
      if (seen.length < 3 || seen.length < 0.12 * vertices.length) return [];
      const middle = [0, 1].map((axis) => seen.reduce((sum, at) => sum + at[axis], 0) / seen.length);
      const away = (at) => Math.hypot(at[0] - middle[0], at[1] - middle[1]), best = seen.reduce((a, b) => (away(b) < away(a) ? b : a));
      const [x, y] = [best[0] + pane.width / 2, best[1] + pane.height / 2];
      return x < 8 || y < 8 || x > pane.width - 8 || y > pane.height - 8 ? [] : [[part, x, y]];
    });
  }

  placeMarks(pane) {
    for (const node of pane.marks.values()) node.hidden = true;
    for (const [part, x, y] of this.marksOf(pane)) {
      if (!pane.marks.has(part)) {
        pane.marks.set(part, el("span", { class: "mark" }, String(part)));
        pane.label.append(pane.marks.get(part));
      }
      const node = pane.marks.get(part);
      node.hidden = false;
      node.style.left = `${x}px`;
      node.style.top = `${y}px`;
    }
  }

  /** The vertex under a point of the page (in pixels of the stage): {half, vertex, index} or null. */
  pick(x, y) {
    const pane = this.panes.find((p) => x >= p.x && x < p.x + p.width && y >= p.y && y < p.y + p.height);
    if (!pane) return null;
    const { half } = pane, { right, up, toward } = this.camera(pane), size = this.magnification(pane);
    const wantX = (x - pane.x - pane.width / 2) / size, wantY = (pane.y + pane.height / 2 - y) / size;
    const p = half.shapes[this.shape].positions, t = half.triangles;
    const across = (i) => p[3 * i] * right[0] + p[3 * i + 1] * right[1] + p[3 * i + 2] * right[2];
    const above = (i) => p[3 * i] * up[0] + p[3 * i + 1] * up[1] + p[3 * i + 2] * up[2];
    const depth = (i) => p[3 * i] * toward[0] + p[3 * i + 1] * toward[1] + p[3 * i + 2] * toward[2];
    const U = new Float32Array(half.n), V = new Float32Array(half.n);
    for (let i = 0; i < half.n; i++) {
      U[i] = across(i) - wantX;
      V[i] = above(i) - wantY;
    }
    let best = -Infinity, vertex = -1;
    for (let i = 0; i < t.length; i += 3) {
      const a = t[i], b = t[i + 1], c = t[i + 2];
      const ab = U[a] * V[b] - U[b] * V[a], bc = U[b] * V[c] - U[c] * V[b], ca = U[c] * V[a] - U[a] * V[c];
      if (!((ab >= 0 && bc >= 0 && ca >= 0) || (ab <= 0 && bc <= 0 && ca <= 0))) continue;
      const sum = ab + bc + ca;
      if (sum === 0) continue;
      const z = (bc * depth(a) + ca * depth(b) + ab * depth(c)) / sum;
      if (z > best) {
        best = z;
        vertex = Math.abs(bc) >= Math.abs(ca) && Math.abs(bc) >= Math.abs(ab) ? a : Math.abs(ca) >= Math.abs(ab) ? b : c;
      }
    }
    return vertex < 0 ? null : { half, vertex, number: half.numbers ? half.numbers[vertex] : vertex, index: half.first + vertex };
  }

  turn(yaw, pitch) {
    this.yaw += yaw;
    this.pitch = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, this.pitch + pitch));
    this.draw();
  }

  look(yaw, pitch) {
    Object.assign(this, { yaw, pitch, zoom: 1 });
    this.draw();
  }

  zoomBy(factor) {
    this.zoom = Math.max(0.5, Math.min(8, this.zoom * factor));
    this.draw();
  }

  listen() {
    let held = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const pane = this.panes.find((p) => event.clientX - box.left < p.x + p.width && event.clientX - box.left >= p.x);
      held = { x: event.clientX, y: event.clientY, sign: pane && pane.half.side === "right" ? 1 : -1 };
      this.canvas.setPointerCapture(event.pointerId);
      tip.hide();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.hover(event);
      this.turn(held.sign * (event.clientX - held.x) * 0.008, (event.clientY - held.y) * 0.008);
      Object.assign(held, { x: event.clientX, y: event.clientY });
    });
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => { held = null; });
    this.canvas.addEventListener("pointerleave", tip.hide);
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== this.canvas) return; // a page that scrolls should scroll
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.0015));
    }, { passive: false });
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const found = this.pick(event.clientX - box.left, event.clientY - box.top);
    if (found && this.describe) tip.show(this.describe(found), event);
    else tip.hide();
  }
}
