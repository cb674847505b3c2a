// Browsers refuse workers to pages that are opened from disk. There, the script of the search runs in a hidden frame instead, to
// which messages go as events. The plugin for use without a server would load such a script from another site.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!DOCTYPE html><title>worker</title><body></body>";
      const opened = new Promise((done) => this.frame.addEventListener("load", done, { once: true }));
      document.body.append(this.frame);
      opened.then(() => this.begin(new URL(url, document.baseURI)));
    }

    async begin(url) {
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => this.receive(data);
      this.inside.importScripts = (...urls) =>
        urls.reduce((loaded, script) => loaded.then(() => this.load(new URL(script, url))), Promise.resolve());
      await this.load(url);
      for (const data of this.waiting) this.send(data);
      this.waiting = null;
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = String(url);
        script.onload = loaded;
        script.onerror = () => failed(new Error(`cannot load ${url}`));
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.send(data);
    }

    send(data) {
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }

    receive(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
