import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isAlive } from './server-process'

/**
 * The commands that use the server of a data folder: the last one stops it. Each has a file beside the folder, named
 * after its process, so that one that was killed does not count.
 *
 * Who leaves announces the stop before it looks for others, and who joins registers before it looks for a stop: so one
 * of the two sees the other, and no server is stopped under a command that has just found it.
 */
export class ServerUsers {
  private static joined = 0
  private readonly folder: string
  private readonly name: string

  constructor(dataFolder: string) {
    this.folder = `${dataFolder}.users`
    ServerUsers.joined += 1
    this.name = `${process.pid}.${ServerUsers.joined}`
  }

  /** Registers this command, and waits while another one stops the server. */
  async join(): Promise<void> {
    mkdirSync(this.folder, { recursive: true })
    writeFileSync(this.file(), '')
    while (this.live('stopping').length > 0) await sleep(20)
  }

  /** @returns the end of this command's stop, which the caller now owes; undefined if others still use the server */
  leave(): (() => void) | undefined {
    if (!existsSync(this.file())) return undefined
    const announcement = this.file('stopping')
    writeFileSync(announcement, '')
    rmSync(this.file(), { force: true })
    const end = (): void => rmSync(announcement, { force: true })
    if (this.live('using').length === 0) return end
    end()
    return undefined
  }

  private file(state: 'using' | 'stopping' = 'using'): string {
    return path.join(this.folder, `${this.name}.${state}`)
  }

  private live(state: 'using' | 'stopping'): string[] {
    return readdirSync(this.folder).filter((name) => name.endsWith(`.${state}`) && this.isLive(name))
  }

  private isLive(name: string): boolean {
    if (isAlive(Number.parseInt(name))) return true
    rmSync(path.join(this.folder, name), { force: true })
    return false
  }
}
