/** What a document asks its reader to do: files to write, and commands to run after that, in their order. */
export interface Example {
  readonly files: Readonly<Record<string, string>>
  readonly steps: readonly { readonly command: string; readonly output: string | undefined }[]
}

const BLOCK =
  /(?:^<!-- (?<mark>\w+)[^>]* -->\n\s*)?^```\w*(?: \[(?<label>\S+)\])?\n(?<text>(?:(?:\/\/|#) (?<head>[\w./-]+\.\w+)\n)?.*?)^```$/gmsu

/**
 * The fenced blocks that are files, and those that a comment marks as commands or as what these print. The name of a
 * file is visible: it is the first line, `// main.ts`, or for JSON a label of the block, `[package.json]`. `<!-- run -->`
 * and `<!-- output -->` stand on a line of their own before a block.
 */
export function readExample(markdown: string): Example {
  const files: Record<string, string> = {}
  const steps: { command: string; output: string | undefined }[] = []
  for (const { groups = {} } of markdown.matchAll(BLOCK)) {
    const { mark, label, head = label, text = '' } = groups
    const last = steps.at(-1)
    if (mark === 'run') steps.push({ command: text, output: undefined })
    else if (mark === 'output' && last) last.output = text.trim()
    else if (mark === undefined && head !== undefined) files[head] = text
  }
  return { files, steps }
}

/** A document of recipes: each section is executed with the files that come before the first one. */
export interface Recipes {
  readonly shared: Readonly<Record<string, string>>
  /** The sections that have commands, by their headings. */
  readonly executed: readonly (readonly [title: string, recipe: Example])[]
  /** The section with a heading. */
  of(title: string): Example
}

export function readRecipes(markdown: string): Recipes {
  const [head = '', ...sections] = markdown.split(/^## /mu)
  const all = new Map(sections.map((text) => [text.slice(0, text.indexOf('\n')), readExample(text)]))
  return {
    shared: readExample(head).files,
    executed: [...all].filter(([, { steps }]) => steps.length > 0),
    of: (title) => {
      const recipe = all.get(title)
      if (!recipe) throw new TypeError(`no section "${title}"`)
      return recipe
    },
  }
}

const LINES = /^<!-- lines: (?<name>\w+) -->\n\s*^```ts\n(?<text>.*?)^```$/gmsu

/** Lines of a program that a document leaves to its reader: classes first, and after a blank line what is done. */
export interface Lines {
  readonly name: string
  readonly classes: string
  readonly body: string
  readonly output: string
}

/** The fenced blocks after `<!-- lines: NAME -->`. */
export function readLines(markdown: string): Lines[] {
  return [...markdown.matchAll(LINES)].map(({ groups = {} }) => {
    const { name = '', text = '' } = groups
    const start = text.startsWith('@') ? text.indexOf('\n\n') : 0
    return { name, classes: text.slice(0, start), body: text.slice(start), output: printedBy(text) }
  })
}

/** What a program prints, by the comments behind its `console.log(…)`, or on the line below it. */
export const printedBy = (program: string): string =>
  [...program.matchAll(/^ *(?:console\.log\(.*)?\)(?: |\n *)\/\/ (.+)$/gmu)].map(([, output = '']) => output).join('\n')

/** Fenced blocks that are neither files nor marked, so that no test runs them. */
export function unmarkedBlocks(markdown: string): string[] {
  return [...markdown.matchAll(BLOCK)].flatMap(({ groups = {} }) => {
    const { mark, label, head, text = '' } = groups
    return (mark ?? label ?? head) === undefined ? [text] : []
  })
}
