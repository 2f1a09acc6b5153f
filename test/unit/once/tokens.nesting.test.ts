import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { insideOf } from '../../../src/once/tokens'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

test('work that schedules its next run keeps no earlier run', async () => {
  const seen: WeakRef<object>[] = []
  const tick = async (): Promise<void> => await new Promise((go) => setImmediate(go))
  const run = async (left: number, ended: () => void): Promise<void> => {
    const of = {}
    seen.push(new WeakRef(of))
    await insideOf(of, `run ${left}`, async () => {
      // As a timer or an emitter does: the next run begins when this one is over, in the context of this one.
      setImmediate(() => void (left === 0 ? inLast(ended) : run(left - 1, ended)))
      await Promise.resolve()
    })
  }
  let kept = 0
  const inLast = async (ended: () => void): Promise<void> => {
    await tick()
    collect()
    kept = seen.slice(0, -2).filter((one) => one.deref() !== undefined).length
    ended()
  }
  await new Promise<void>((ended) => void run(20, ended))
  expect(kept).toBe(0)
})
