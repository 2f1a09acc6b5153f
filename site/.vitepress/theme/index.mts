import type { Theme } from 'vitepress'
import DefaultTheme from 'vitepress/theme'
import './style.css'
import TryIt from './TryIt.vue'

export default {
  extends: DefaultTheme,
  enhanceApp: ({ app }) => void app.component('TryIt', TryIt),
} satisfies Theme
