import './theme/layers.css';
import '@fontsource-variable/inter/index.css';
import '@fontsource-variable/jetbrains-mono/index.css';
import '@mantine/core/styles.layer.css';
import '@mantine/notifications/styles.layer.css';
import './theme/tokens.css';
import { createRoot } from 'react-dom/client';
import { newQueryClient } from '~/api/queries';
import { App } from './App';
import { newRouter } from './routes';

const queries = newQueryClient();
const root = document.getElementById('root');
if (!root) throw new Error('index.html has no root');
createRoot(root).render(<App queries={queries} router={newRouter(queries)} />);
