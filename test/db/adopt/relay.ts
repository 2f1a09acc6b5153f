import { createServer, type AddressInfo, Socket } from 'node:net'

/** Between the command and the server; strikes in the midst of what the command sends. */
export interface Relay {
  readonly url: string
  /** Calls `strike` once, when so many more pieces of requests have been sent on. */
  arm(pieces: number, strike: () => void): void
  /** Nothing is struck any more; says whether the strike has come. */
  disarm(): boolean
  close(): Promise<void>
}

export async function startRelay(serverUrl: string): Promise<Relay> {
  const { port, hostname } = new URL(serverUrl)
  const sockets = new Set<Socket>()
  let armed: { left: number; readonly strike: () => void } | undefined
  let struck = false

  const count = (): void => {
    if (!armed) return
    armed.left -= 1
    if (armed.left > 0) return
    const { strike } = armed
    armed = undefined
    struck = true
    strike()
  }
  const server = createServer((client) => {
    const upstream = new Socket().connect(Number(port), hostname)
    const cut = (): void => {
      for (const socket of [client, upstream]) {
        sockets.delete(socket)
        socket.destroy()
      }
    }
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', cut).on('close', cut)
    }
    client.on('data', (request) => {
      upstream.write(request)
      count()
    })
    upstream.on('data', (answer) => client.write(answer))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(serverUrl)
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    arm: (left, strike) => {
      armed = { left, strike }
      struck = false
    },
    disarm: () => {
      armed = undefined
      return struck
    },
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
