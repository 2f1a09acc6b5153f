import type { FindOrCreateProgress, ProgressOptions } from '../rows/call-options'

/** Reports to the caller how far the call is, and lets the caller end it between two batches. */
export class Progress {
  private done = 0
  private created = 0
  private rejected = 0

  constructor(private readonly options: ProgressOptions = {}) {}

  /** @throws the signal's reason, once it is aborted */
  check(): void {
    this.options.signal?.throwIfAborted()
  }

  /** Takes what became of inputs. Of equal texts, only the first can be created. */
  count(result: { readonly created: boolean } | { readonly error: unknown }, inputs: number): void {
    this.done += inputs
    if ('error' in result) this.rejected += inputs
    else if (result.created) this.created += 1
  }

  get counts(): FindOrCreateProgress {
    const { done, created, rejected } = this
    return { done, created, rejected }
  }

  report(): void {
    this.options.onProgress?.(this.counts)
  }
}
