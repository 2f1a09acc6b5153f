import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * Lets V8 look for garbage when the heap has grown by a quarter. By default it waits for several times what is in use: of
 * an import that needs 30 MB, rows that are stored long since would fill another 100 MB before the first of them goes.
 * The space for new objects stays as it is, too: it would grow to 30 or 60 MB, of which nearly all is garbage.
 */
export function keepHeapSmall(): void {
  setFlagsFromString('--heap-growing-percent=25')
  setFlagsFromString('--semi-space-growth-factor=1')
  setFlagsFromString('--expose-gc')
  // The first collection sets the limit for the next.
  const collect: unknown = runInNewContext('globalThis.gc')
  if (typeof collect === 'function') collect()
}
