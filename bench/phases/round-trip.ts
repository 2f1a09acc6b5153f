import { fork } from 'node:child_process'
import path from 'node:path'
import { type Comparison, openPeers, peersWith } from '../measure'
import type { Phase } from '../phase'
import { calls } from './single'

const DELAYS_MILLISECONDS = [1, 5]
const POOL_SIZE = 10

/** A server that is not on this machine. */
export const roundTrip: Phase = {
  name: 'round-trip',
  run: async (bench) => {
    const comparisons: Comparison[] = []
    const rounds = Math.ceil(bench.settings.rounds / 2)
    const factories = bench.factories.filter((_, at) => bench.peers[at]?.findOrCreate)
    for (const delay of DELAYS_MILLISECONDS) {
      const proxy = await startProxy(bench.server.url, delay)
      const peers = await openPeers(factories, { url: proxy.url, poolSize: POOL_SIZE })
      const there = { ...bench, peers, settings: { ...bench.settings, rounds } }
      const after = `${delay} ms a round trip`
      const shared = { phase: 'round-trip', callerCount: 1, peers: peersWith(there, 'findOrCreate') }
      comparisons.push(await calls(there, { ...shared, title: `hit, ${after}`, newShare: 0 }))
      comparisons.push(await calls(there, { ...shared, title: `miss, ${after}`, newShare: 1 }))
      await Promise.all(peers.map(async (peer) => await peer.close()))
      proxy.stop()
    }
    return comparisons
  },
}

/** In a process of its own, so that its CPU time is not counted with the client's. */
async function startProxy(serverUrl: string, delay: number): Promise<{ url: string; stop: () => void }> {
  const child = fork(path.resolve(__dirname, '../delay-proxy.ts'), [serverUrl, String(delay)])
  const url = await new Promise<string>((resolve, reject) => {
    child.once('message', (message) => resolve(message as string))
    child.once('exit', (code) => reject(new Error(`The proxy ended with ${code}.`)))
  })
  return { url, stop: () => child.kill() }
}
