// Loaded in the offline build alone. Browsers refuse to start a worker for pages opened as files; the script
// that searches then runs in a hidden frame instead, which offers as much of a worker's interface as it uses.

class FrameWorker extends EventTarget {
  constructor(script) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    this.running = new Promise((resolve) => {
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const element = inside.document.createElement("script");
        element.src = script;
        element.addEventListener("load", () => resolve(inside));
        inside.document.body.append(element);
      });
    });
    document.body.append(frame);
  }

  async postMessage(data) {
    (await this.running).dispatchEvent(new MessageEvent("message", { data }));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
