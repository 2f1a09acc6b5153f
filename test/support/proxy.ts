import { createServer, type AddressInfo, Socket } from 'node:net'

/**
 * What happens to the connection that sends a certain request:
 *
 * - `request lost`: cut before the request reaches the server
 * - `cut at once`: the request is forwarded and the connection cut; whether the server has done it is open
 * - `answer lost`: the server has done it and says so; the connection is cut before the client hears of it
 * - `closed to the client`: as before, but in good order (FIN) and on the client's side only
 * - `closed to the server`: the server gets the request and then the end of the stream; its answer passes
 * - `answer held`: the answer waits for `release`
 */
export type ConnectionFault =
  | 'request lost'
  | 'cut at once'
  | 'answer lost'
  | 'closed to the client'
  | 'closed to the server'
  | 'answer held'

/** Between client and server; passes everything until it is told to do otherwise. */
export interface Proxy {
  /** The server's URL by way of the proxy. */
  readonly url: string
  /** The next request that holds one of these meets the fault. Resolves when it has. */
  once(texts: readonly string[], fault: ConnectionFault): Promise<void>
  /** Passes the answers that are held. */
  release(): void
  /** Cuts every connection. */
  cutAll(): number
  /** Cuts new connections as soon as they are made. */
  refuse(on: boolean): void
  /** New connections go to another server from now on. */
  leadTo(serverUrl: string): void
  close(): Promise<void>
}

interface Trap {
  readonly texts: readonly string[]
  readonly fault: ConnectionFault
  readonly sprung: () => void
}

/** The server is ready for the next request: all of the last one is done and, outside a transaction, committed. */
const isReady = (answer: Buffer): boolean =>
  answer.length >= 6 &&
  answer.readUInt8(answer.length - 6) === 'Z'.charCodeAt(0) &&
  answer.readUInt32BE(answer.length - 5) === 5

export async function startProxy(serverUrl: string): Promise<Proxy> {
  let { port, hostname } = new URL(serverUrl)
  const pairs = new Set<readonly [Socket, Socket]>()
  const held: (() => void)[] = []
  let trap: Trap | undefined
  let refusing = false

  const server = createServer({ allowHalfOpen: true }, (client) => {
    if (refusing) {
      client.destroy()
      return
    }
    const upstream = new Socket({ allowHalfOpen: true }).connect(Number(port), hostname)
    const pair = [client, upstream] as const
    let fault: Trap | undefined
    const cut = (): void => {
      pairs.delete(pair)
      client.destroy()
      upstream.destroy()
    }
    pairs.add(pair)
    for (const socket of pair) socket.on('error', cut).on('close', cut)
    client.on('data', (request) => {
      if (trap?.texts.some((text) => request.includes(text))) {
        fault = trap
        trap = undefined
      }
      if (fault?.fault === 'request lost') {
        cut()
        fault.sprung()
      } else if (fault?.fault === 'cut at once') {
        upstream.write(request, cut)
        fault.sprung()
      } else if (fault?.fault === 'closed to the server') {
        upstream.end(request, fault.sprung)
      } else upstream.write(request)
    })
    upstream.on('data', (answer) => {
      if (fault === undefined || fault.fault === 'closed to the server') {
        client.write(answer)
      } else if (fault.fault === 'answer held') {
        held.push(() => {
          fault = undefined
          client.write(answer)
        })
        fault.sprung()
      } else if (isReady(answer)) {
        // Only now is it done and committed; what came before it was held back too.
        if (fault.fault === 'answer lost') cut()
        else client.end()
        fault.sprung()
      }
    })
    client.on('end', () => upstream.end())
    upstream.on('end', () => client.end())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(serverUrl)
  url.port = String((server.address() as AddressInfo).port)
  const cutAll = (): number => {
    const count = pairs.size
    for (const pair of pairs) for (const socket of pair) socket.destroy()
    return count
  }
  return {
    url: url.href,
    once: async (texts, fault) => {
      await new Promise<void>((sprung) => (trap = { texts, fault, sprung }))
    },
    release: () => {
      for (const pass of held.splice(0)) pass()
    },
    cutAll,
    refuse: (on) => {
      refusing = on
    },
    leadTo: (other) => {
      ;({ port, hostname } = new URL(other))
    },
    close: async () => {
      cutAll()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
