// Search runs in a worker, which browsers refuse to pages that are opened from a file. There, a
// hidden frame does the worker's job, so that search needs no server.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      const started = () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => {
          const message = new MessageEvent("message", { data });
          this.dispatchEvent(message);
          if (this.onmessage) this.onmessage(message);
        };
        inside.importScripts = (...urls) =>
          urls.reduce((before, one) => before.then(() => loaded(inside, one)), Promise.resolve());
        loaded(inside, url).then(() => {
          this.inside = inside;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        });
      };
      const loaded = (inside, one) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.src = new URL(one, location.href).href;
          script.onload = done;
          script.onerror = failed;
          inside.document.head.append(script);
        });
      frame.addEventListener("load", started, { once: true });
      document.body.append(frame);
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
