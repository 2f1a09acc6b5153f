import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { PeerFactory } from './peer'
import type { Plots } from './report/html'

/** A manifest, as far as we read it. */
interface Manifest {
  readonly version?: string
  readonly dependencies?: Readonly<Record<string, string>>
}

const manifestIn = async (...folders: string[]): Promise<Manifest> =>
  JSON.parse(await readFile(path.join(__dirname, ...folders, 'package.json'), 'utf8')) as Manifest

/** The versions of bench/package.json are exact. */
export async function packageVersions(): Promise<Readonly<Record<string, string>>> {
  return (await manifestIn()).dependencies ?? {}
}

/**
 * Installs what bench/package.json names, if it is not there.
 *
 * @throws Error that says what to do if npm cannot
 */
export async function installPackages(): Promise<void> {
  const versions = Object.entries(await packageVersions())
  const installed = await Promise.all(
    versions.map(async ([name, version]) => {
      const manifest = await manifestIn('node_modules', name).catch(() => undefined)
      return manifest?.version === version
    }),
  )
  if (installed.every(Boolean)) return
  console.log('npm ci --prefix bench (once, 400 MB)')
  const child = spawn('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
    cwd: __dirname,
    stdio: 'inherit',
  })
  const code = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve))
  if (code !== 0) {
    throw new Error('The peers could not be installed. Run `npm run bench -- --without-peers`, or look at npm’s error.')
  }
}

/** These files are not compiled with the others, for which the packages may be missing. */
export async function loadOrms(): Promise<readonly PeerFactory[]> {
  return ((await import(path.join(__dirname, 'packages/index.ts'))) as { readonly ORMS: readonly PeerFactory[] }).ORMS
}

export async function loadPlots(): Promise<Plots> {
  return (await import(path.join(__dirname, 'packages/plots.ts'))) as Plots
}
