// Browsers start no workers for pages that are opened as files. There a hidden frame runs the
// script of the search, which then needs no server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      // The script's own answers.
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((done) => script.addEventListener("load", done));
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      const message = new this.inside.MessageEvent("message", { data });
      this.loaded.then(() => this.inside.dispatchEvent(message));
    }
  };
}
